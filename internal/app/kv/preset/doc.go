// Package preset lays predictions beside published serving benchmarks: systems that
// disaggregate prefill and decode, and the baselines of the same reports. A preset is a system
// with the rows that were published of it; Run predicts each row (kv/predict) and says how far
// off every column is.
//
// Which figures a parameter was fitted to is marked; all others are held out. A preset may have
// one software cost, fitted to one stated figure: what the network does not explain and a
// constant may. Where that does not explain a row either, the row says so by its errors.
package preset
