package main

import (
	"crypto/fips140"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/pkg/mapd"
)

func newVersion(s streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if output == "json" {
				versions := map[string]string{"mapd": version(), "kubernetes": mapd.Kubernetes, "go": runtime.Version()}
				if fips140.Enabled() {
					versions["fips140"] = fips140.Version()
				}
				out, err := marshal(versions, "    ")
				if err == nil {
					_, err = s.out.Write(out)
				}
				return err
			}
			_, err := fmt.Fprint(s.out, versionText())
			return err
		},
	}
	choiceVarP(cmd.Flags(), &output, "output", "o", "text", "", "text", "json")
	return cmd
}

// versionText returns the output of --version and of the command version.
func versionText() string {
	text := fmt.Sprintf("mapd %s, Kubernetes %s, %s", version(), mapd.Kubernetes, runtime.Version())
	if fips140.Enabled() {
		text += ", FIPS 140-3 mode with Go's Cryptographic Module " + fips140.Version()
	}
	return text + "\n"
}

// release is the version of a released binary; the linker sets it.
var release string

// version returns the version of the release or the module, or the commit that was built.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}
