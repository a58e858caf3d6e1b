// Package kube runs oneboot-cluster against a real kube-apiserver and etcd, which
// "make test-kube" builds from their modules, with the manifests as an admin
// applies them and hosts made of real ostree sysroots. The build tag "kube" keeps
// it out of the other tests.
package kube
