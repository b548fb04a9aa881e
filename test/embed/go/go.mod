// Not part of topoctl: a program of somebody else, that imports only what others may.
module example.com/pusher

go 1.26.0

require github.com/topoctl/topoctl v0.0.0

require (
	github.com/clipperhouse/displaywidth v0.11.0 // indirect
	github.com/clipperhouse/uax29/v2 v2.7.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace github.com/topoctl/topoctl => ../../..
