#include "textflag.h"

// func copyStream(dst, src unsafe.Pointer, n uintptr)
//
// No prefetch: PREFETCHNTA costs more than a third here. SFENCE, because streaming
// stores are not ordered with the store that tells somebody of them.
TEXT ·copyStream(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	VMOVDQU  (SI), Y0
	VMOVDQU  32(SI), Y1
	VMOVDQU  64(SI), Y2
	VMOVDQU  96(SI), Y3
	VMOVNTDQ Y0, (DI)
	VMOVNTDQ Y1, 32(DI)
	VMOVNTDQ Y2, 64(DI)
	VMOVNTDQ Y3, 96(DI)
	ADDQ     $128, SI
	ADDQ     $128, DI
	SUBQ     $128, CX
	JNE      loop
	SFENCE
	VZEROUPPER
	RET
