package load

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process has used so far.
type Usage struct {
	CPU time.Duration // in steps of 10 ms
	// RSS is the resident memory in bytes. Anon is the part of it without pages of files, such as
	// those of the program itself. Peak is the largest RSS so far.
	RSS, Anon, Peak int64
}

// ReadUsage reads the usage of a process from /proc. It returns an error on systems that do not
// have the /proc of Linux.
func ReadUsage(pid int) (u Usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, fmt.Errorf("not known: %w", err)
	}
	if u.CPU, err = parseStat(stat); err != nil {
		return u, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, fmt.Errorf("not known: %w", err)
	}
	for name, into := range map[string]*int64{"VmRSS": &u.RSS, "RssAnon": &u.Anon, "VmHWM": &u.Peak} {
		if *into, err = parseStatus(string(status), name); err != nil {
			return u, fmt.Errorf("/proc/%d/status: %w", pid, err)
		}
	}
	return u, nil
}

// parseStat returns the sum of the times in user and kernel mode in stat (proc(5)). Linux reports
// them in hundredths of a second.
func parseStat(stat []byte) (time.Duration, error) {
	// The second field is a name in parentheses, which may have any characters.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("only %d fields", len(fields))
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// parseStatus returns a field that is a number of kB.
func parseStatus(status, name string) (int64, error) {
	for line := range strings.Lines(status) {
		value, ok := strings.CutPrefix(line, name+":")
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		return n << 10, err
	}
	return 0, fmt.Errorf("no %s", name)
}
