//go:build tools

// Package tools names the program that `../../control-plane/build` builds from here, so that `go mod tidy`
// keeps what it needs.
package tools

import (
	_ "k8s.io/kubernetes/cmd/kube-proxy"
)
