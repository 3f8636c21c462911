//go:build !linux

package main

func releaseProgram() {}
