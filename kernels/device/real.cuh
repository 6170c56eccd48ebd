// Tangled from book/src/compiling-kernels.md: edit there, or here and run cargo tangle stitch.
// Real numbers of a kernel.
#pragma once

#ifndef REAL
#define REAL double
#endif
typedef REAL real;
