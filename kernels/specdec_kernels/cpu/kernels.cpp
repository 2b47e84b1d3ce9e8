// CPU kernels of decoder layers: weights stay in the model's dtype, every sum is float32.
//
// Each output element is summed in an order that depends only on its own row, never on how many rows share the call:
// a token's logits are bit-identical whether it is verified alone or among drafts.
#include "draft.h"
#include "layer.h"
#include "rows.h"
#include "stack.h"

template <class T> static void linear_rows(const Linear* l, const T* x, T* out, int M, int nt) {
  float* xs = main_scratch.need((size_t)M * l->k);
#pragma omp parallel num_threads(nt)
  {
    for (int m = omp_get_thread_num(); m < M; m += omp_get_num_threads())
      for (int i = 0; i < l->k; i++) xs[(size_t)m * l->k + packed<T>(i)] = to_float(x[(size_t)m * l->k + i]);
#pragma omp barrier
    linear<T>(*l, xs, M, [&](int m, int n, float v) { store(out + (size_t)m * l->n + n, v); });
  }
}

template <class T> static void norm_rows(const float* scale, float eps, int n, const T* x, T* out, int M) {
  for (int m = 0; m < M; m++, x += n, out += n) {
    float r = inv_rms(x, n, eps);
    for (int i = 0; i < n; i++) store(out + i, to_float(x[i]) * r * scale[i]);
  }
}

#define EXPORT(T, SUFFIX)                                                                                               \
  extern "C" void attn_in_##SUFFIX(const Layer* L, const T* x, const T* cos, const T* sin, int64_t cs, float* q, T* kv,  \
                                   int M, int nt) { attn_in<T>(L, x, cos, sin, cs, q, kv, M, nt); }                     \
  extern "C" void attn_out_##SUFFIX(const Layer* L, const float* q, const View* k, const View* v, const Mask* mask,      \
                                    const T* x, T* out, int R, int Q, int kv, int nt) {                                 \
    attn_out<T>(L, q, k, v, mask, x, out, R, Q, kv, nt); }                                                              \
  extern "C" void linear_##SUFFIX(const Linear* l, const T* x, T* out, int M, int nt) { linear_rows<T>(l, x, out, M, nt); } \
  extern "C" void pack_##SUFFIX(const T* w, T* panels, int n, int k) { pack<T>(w, panels, n, k); }                         \
  extern "C" void norm_##SUFFIX(const float* s, float eps, int n, const T* x, T* out, int M) { norm_rows<T>(s, eps, n, x, out, M); }
#define EXPORT_STACK(T, SUFFIX)                                                                    \
  extern "C" void stack_##SUFFIX(const Stack* S, const Requests* B, T* x, const Outputs* O, int nt) { \
    stack<T>(S, B, x, O, nt); }                                                                     \
  extern "C" void draft_##SUFFIX(const Draft* D, const Round* R, int nt) { draft<T>(D, R, nt); }     \
  extern "C" void draft_context_##SUFFIX(const Draft* D, const Round* R, const float* norm, float eps, int nt) { \
    draft_context<T>(D, R, norm, eps, nt); }                                                        \
  extern "C" void packed_order_##SUFFIX(int32_t order[BLOCK]) { for (int i = 0; i < BLOCK; i++) order[packed<T>(i)] = i; }
EXPORT(float, f32)
EXPORT(bf16, bf16)
EXPORT_STACK(float, f32)
EXPORT_STACK(bf16, bf16)
