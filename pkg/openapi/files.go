//go:build !mapd_fetch

package openapi

import "embed"

//go:embed builtin/*.schema.zst
var schemas embed.FS

func readSchema(file string) ([]byte, error) { return schemas.ReadFile("builtin/" + file) }
