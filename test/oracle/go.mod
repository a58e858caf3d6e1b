module github.com/oneboot/oneboot/test/oracle

go 1.26.0

require (
	github.com/oneboot/oneboot v0.0.0
	github.com/ostreedev/ostree-go v0.0.0-20210805093236-719684c64e4f
)

require (
	cyphar.com/go-pathrs v0.2.5 // indirect
	github.com/cyphar/filepath-securejoin v0.7.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace github.com/oneboot/oneboot => ../../
