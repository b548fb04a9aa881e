// Package preset lays predictions beside published serving benchmarks: systems that
// disaggregate prefill and decode, and the baselines of the same reports. A preset is a system
// with the rows that were published of it; Run predicts each row (kv/serve) and says how far
// off every column is.
//
// A figure that a parameter was fitted to is marked, and no row with such a figure is held out. A
// preset may have one software cost, fitted to one stated figure, for what the network does not
// explain. The errors of each row are printed as they are.
package preset
