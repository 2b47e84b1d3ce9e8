// Vectors of LANES floats, and how weights of either dtype become such vectors.
#pragma once
#include <cstdint>
#include <cstring>

#ifndef LANES
#if defined(__AVX512F__)
#define LANES 16
#else
#define LANES 8
#endif
#endif

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint16_t vh __attribute__((vector_size(2 * LANES)));
struct bf16 { uint16_t bits; };

enum { BLOCK = 16 };  // weights are read in blocks of 16 elements

static inline float to_float(float v) { return v; }
static inline float to_float(bf16 v) { uint32_t b = (uint32_t)v.bits << 16; float f; memcpy(&f, &b, 4); return f; }
static inline void store(float* p, float v) { *p = v; }
static inline void store(bf16* p, float v) {
  uint32_t b; memcpy(&b, &v, 4);
  p->bits = (b & 0x7fffffffu) > 0x7f800000u ? 0x7fc0 : (uint16_t)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
static inline vf load(const float* p) { vf v; memcpy(&v, p, sizeof v); return v; }
static inline vf load(const bf16* p) {
  vh h; memcpy(&h, p, sizeof h);
  return (vf)(__builtin_convertvector(h, vu) << 16);
}
static inline void save(float* p, vf v) { memcpy(p, &v, sizeof v); }
typedef float v8 __attribute__((vector_size(32)));
typedef float v4 __attribute__((vector_size(16)));
static inline v8 fold(vf v) {
#if LANES == 16
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) + __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  return v;
#endif
}
static inline v8 pair_up(v8 a, v8 b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13) + __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
}
static inline v4 sum4(vf a, vf b, vf c, vf d) {  // four horizontal sums; each always adds its lanes in the same order
  v8 ab = pair_up(fold(a), fold(b)), cd = pair_up(fold(c), fold(d));
  v8 s = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) + __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
  return __builtin_shufflevector(s, s, 0, 1, 2, 3) + __builtin_shufflevector(s, s, 4, 5, 6, 7);
}
static inline float sum(vf v) { return sum4(v, (vf){}, (vf){}, (vf){})[0]; }

// A block of 16 weights as VECS float vectors. With 8 lanes a bfloat16 pair is split by a shift and a mask, so the
// activations are stored even-elements-first inside each block ("packed"); otherwise the order is the natural one.
enum { VECS = BLOCK / LANES };
static inline void read_block(const float* p, vf out[VECS]) { for (int i = 0; i < VECS; i++) out[i] = load(p + i * LANES); }
static inline void read_block(const bf16* p, vf out[VECS]) {
#if LANES == 8
  vu w; memcpy(&w, p, sizeof w);
  out[0] = (vf)(w << 16);
  out[1] = (vf)(w & 0xffff0000u);
#else
  vh h; memcpy(&h, p, sizeof h);
  out[0] = (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}
static inline vf read_part(const float* p, int v) { return load(p + v * LANES); }
static inline vf read_part(const bf16* p, int v) {
#if LANES == 8
  vu w; memcpy(&w, p, sizeof w);
  return (vf)(v ? w & 0xffff0000u : w << 16);
#else
  return load(p + v * LANES);
#endif
}
template <class T> static inline int packed(int i) {
  if (sizeof(T) == 2 && LANES == 8) return (i & ~15) | ((i & 1) << 3) | ((i & 15) >> 1);
  return i;
}

// Blocks in packed order.
static inline void read_packed(const float* p, vf out[VECS]) { read_block(p, out); }
static inline void read_packed(const bf16* p, vf out[VECS]) { read_block(p, out); }
static inline void save_block(float* p, const vf v[VECS]) { for (int i = 0; i < VECS; i++) save(p + i * LANES, v[i]); }
static inline vu round_bits(vf v) {  // to bfloat16, ties to even, in the upper half of each lane
  vu b = (vu)v;
  vu r = (b + 0x7fffu + ((b >> 16) & 1u)) & 0xffff0000u;
  return (b & 0x7fffffffu) > 0x7f800000u ? (vu){} + 0x7fc00000u : r;
}
template <class T> static inline vf rounded(vf v) { return sizeof(T) == 2 ? (vf)round_bits(v) : v; }
static inline void store_block(float* p, const vf v[VECS]) { save_block(p, v); }
static inline void store_block(bf16* p, const vf v[VECS]) {  // to natural order
#if LANES == 8
  vu w = (round_bits(v[0]) >> 16) | round_bits(v[1]);
  memcpy(p, &w, sizeof w);
#else
  vh h = __builtin_convertvector(round_bits(v[0]) >> 16, vh);
  memcpy(p, &h, sizeof h);
#endif
}
