// Package gputest gives tests memory of GPUs: that of the fake libcuda, which no processor
// can touch. It is empty where cgo or Linux is missing.
package gputest
