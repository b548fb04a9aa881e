// Command gpucheck shows on a machine with NVIDIA GPUs what no other machine can: what the
// driver tells is what nvidia-smi tells, GPU memory moves whole and as fast as the driver copies
// it, and a GPU whose context breaks costs what is on it and nothing else. make gpu builds it with
// all it needs, which is neither Go nor a network.
//
//	gpucheck -out DIR            runs every part, each in a process of its own
//	gpucheck -out DIR -only NAMES
//
// It writes DIR/report.json (schema topoctl.gpucheck/v1), DIR/log.txt and what parts leave
// there. A part has passed, failed, or could not be checked. The
// exit code is 1 where one failed, 3 where none has passed.
//
// The test of this package runs it against stand-ins for the driver's libraries.
package main
