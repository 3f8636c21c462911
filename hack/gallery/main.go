// Command gallery writes the examples of the playground: gallery SITE BLOCKS.
//
// It writes the entries of the gallery to SITE/gallery, and the states of the documentation's
// blocks that can be opened in the playground to the file BLOCKS. It must run in the root of the
// repository; see hack/web.sh.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/mapd-project/mapd/web/gallery"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: gallery SITE BLOCKS")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "gallery:", err)
		os.Exit(1)
	}
}

func write(site, file string) error {
	root := os.DirFS(".")
	if err := gallery.Write(root, filepath.Join(site, "gallery")); err != nil {
		return err
	}
	blocks, err := gallery.Blocks(root)
	if err != nil {
		return err
	}
	return gallery.WriteJSON(file, blocks)
}
