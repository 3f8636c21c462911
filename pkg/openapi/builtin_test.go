package openapi

import (
	"testing"
)

func BenchmarkOpen(b *testing.B) {
	for _, file := range []string{"core_v1.json.zst", "apps_v1.json.zst", "autoscaling_v2.json.zst"} {
		b.Run(file, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d := &document{file: file, size: 1 << 17}
				d.open()
			}
		})
	}
}
func BenchmarkRead(b *testing.B) {
	for b.Loop() {
		d := &document{file: "core_v1.json.zst", size: 1 << 17}
		d.read()
	}
}
