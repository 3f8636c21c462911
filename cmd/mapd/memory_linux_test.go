package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProgramMappings(t *testing.T) {
	const smaps = `00400000-01902000 r-xp 00000000 fe:00 131114                             /opt/the mapd
Size:              21512 kB
Rss:               15600 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me sd
01902000-02f6b000 r--p 01502000 fe:00 131114                             /opt/the mapd
Anonymous:             0 kB
02f6b000-02f6c000 r--p 02b6b000 fe:00 131114                             /opt/the mapd
Anonymous:             4 kB
02f6c000-02f6d000 r--s 02b6c000 fe:00 131114                             /opt/the mapd
Anonymous:             0 kB
02f6d000-0302b000 rw-p 02b6d000 fe:00 131114                             /opt/the mapd
Anonymous:             0 kB
0302b000-0505b000 rw-p 00000000 00:00 0
Anonymous:           216 kB
7f0000000000-7f0000021000 r-xp 00000000 fe:00 131115                     /opt/the mapd-2
Anonymous:             0 kB
7f0000021000-7f0000022000 r--p 00000000 fe:00 131116                     /lib/libc.so.6
Anonymous:             0 kB
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
Anonymous:             0 kB
`
	got := programMappings(strings.NewReader(smaps), "/opt/the mapd")
	want := []mapping{{0x400000, 0x1902000}, {0x1902000, 0x2f6b000}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := programMappings(strings.NewReader("nothing like it\n\n:\n-\n"), ""); got != nil {
		t.Errorf("from what is not smaps: %v", got)
	}
}

// What has been taken out comes back when it is touched.
func TestReleaseProgram(t *testing.T) {
	if _, err := os.Stat("/proc/self/smaps"); err != nil {
		t.Skip(err)
	}
	var before, after strings.Builder
	for _, help := range []*strings.Builder{&before, &after} {
		if code := run([]string{"serve", "--help"}, strings.NewReader(""), help, help); code != exitOK {
			t.Fatalf("exit code %d:\n%s", code, help)
		}
		releaseMemory()
	}
	if diff := cmp.Diff(before.String(), after.String()); diff != "" {
		t.Errorf("-before +after\n%s", diff)
	}
}
