// Tangled from book/src/kernel-language.md: edit there, or here and run cargo tangle stitch.
// CUDA's mathematics for a C++ compiler.

// Functions of the C library
#define OF_ONE(name) \
    extern "C" double name(double); \
    extern "C" float name##f(float); \
    inline float name(float x) { return name##f(x); }
#define OF_TWO(name) \
    extern "C" double name(double, double); \
    extern "C" float name##f(float, float); \
    inline float name(float x, float y) { return name##f(x, y); }

// List of the functions by their arguments
OF_ONE(sqrt)
OF_ONE(cbrt)
OF_ONE(exp)
OF_ONE(log)
OF_ONE(sin)
OF_ONE(cos)
OF_ONE(tan)
OF_ONE(j0)
OF_ONE(j1)
OF_ONE(fabs)
OF_ONE(floor)
OF_ONE(ceil)
OF_ONE(round)
OF_ONE(nearbyint)
OF_TWO(pow)
OF_TWO(hypot)
OF_TWO(atan2)
OF_TWO(fmod)
OF_TWO(fmin)
OF_TWO(fmax)

extern "C" double fma(double, double, double);
extern "C" float fmaf(float, float, float);
inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
extern "C" double nan(const char *);
extern "C" int abs(int);
inline double abs(double x) { return fabs(x); }
inline float abs(float x) { return fabs(x); }

// Mathematics that the C library lacks
#define rsqrt inverse_root
#define rsqrtf inverse_root
#define sinpi sine_of_half_turns
#define sinpif sine_of_half_turns
#define cospi cosine_of_half_turns
#define cospif cosine_of_half_turns
#define sincospi both_of_half_turns
#define sincospif both_of_half_turns

inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float rsqrt(float x) { return float(1 / sqrt(double(x))); }
inline void sincos(float x, float *sine, float *cosine) { *sine = sin(x), *cosine = cos(x); }
template <typename T> T __ldg(const T *address) { return *address; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

// Bits of floating-point numbers
inline long long __double_as_longlong(double x) {
    long long y;
    __builtin_memcpy(&y, &x, 8);
    return y;
}
inline int __float_as_int(float x) {
    int y;
    __builtin_memcpy(&y, &x, 4);
    return y;
}
inline float __int_as_float(int x) {
    float y;
    __builtin_memcpy(&y, &x, 4);
    return y;
}

// Sine and cosine of half turns
inline void sincospi(double x, double *sine, double *cosine) {
    const double pi = 3.14159265358979323846;
    double quarters = nearbyint(2 * x), rest = pi * (x - quarters / 2);
    double s = sin(rest), c = cos(rest);
    switch (int(quarters - 4 * floor(quarters / 4))) {
    case 0: *sine = s, *cosine = c; break;
    case 1: *sine = c, *cosine = -s; break;
    case 2: *sine = -s, *cosine = -c; break;
    default: *sine = -c, *cosine = s;
    }
}
inline void sincospi(float x, float *sine, float *cosine) {
    double s, c;
    sincospi(double(x), &s, &c);
    *sine = float(s), *cosine = float(c);
}

// Sine or cosine alone
template <typename T> T sinpi(T x) {
    T s, c;
    sincospi(x, &s, &c);
    return s;
}
template <typename T> T cospi(T x) {
    T s, c;
    sincospi(x, &s, &c);
    return c;
}

// Least and most of two numbers
#define LEAST_AND_MOST(type) \
    inline type min(type a, type b) { return b < a ? b : a; } \
    inline type max(type a, type b) { return a < b ? b : a; }
LEAST_AND_MOST(int)
LEAST_AND_MOST(unsigned)
LEAST_AND_MOST(long)
LEAST_AND_MOST(unsigned long)
LEAST_AND_MOST(long long)
LEAST_AND_MOST(unsigned long long)
inline float min(float a, float b) { return fmin(a, b); }
inline float max(float a, float b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
