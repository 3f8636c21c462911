package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// releaseProgram takes the pages of the program itself out of this process's
// memory. The kernel still has them, maps those that are touched again without
// reading a file, and may reclaim the others sooner than it would by itself.
// Nothing depends on it, so what does not succeed is let be.
func releaseProgram() {
	path, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range programMappings(bytes.NewReader(maps), path) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.start, m.end-m.start, syscall.MADV_DONTNEED)
	}
}

// A mapping is a range of addresses.
type mapping struct{ start, end uintptr }

// programMappings are those of smaps, in the format of /proc/PID/smaps, that hold
// pages of the file at path as they are in that file: nobody can write to them, and
// no page has been, as relocation and breakpoints do. All else would be lost.
func programMappings(smaps io.Reader, path string) []mapping {
	var (
		out     []mapping
		current mapping
		ours    bool
	)
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), " ")
		switch {
		case !strings.HasSuffix(key, ":"):
			current, ours = parseMapping(key, value, path)
		case key == "Anonymous:" && ours && strings.TrimSpace(value) == "0 kB":
			out = append(out, current)
		}
	}
	return out
}

// parseMapping reads the first line of a mapping, such as
//
//	00400000-018fe000 r-xp 00000000 fe:00 131114    /usr/bin/mapd
//
// and says whether it maps the file at path and is not writable.
func parseMapping(addresses, rest, path string) (m mapping, ok bool) {
	from, to, _ := strings.Cut(addresses, "-")
	start, err := strconv.ParseUint(from, 16, strconv.IntSize)
	if err != nil {
		return m, false
	}
	end, err := strconv.ParseUint(to, 16, strconv.IntSize)
	if err != nil {
		return m, false
	}
	m = mapping{uintptr(start), uintptr(end)}
	fields := strings.SplitN(rest, " ", 5) // permissions, offset, device, inode, path
	return m, len(fields) == 5 && strings.TrimLeft(fields[4], " ") == path &&
		len(fields[0]) == 4 && fields[0][1] == '-' && fields[0][3] == 'p'
}
