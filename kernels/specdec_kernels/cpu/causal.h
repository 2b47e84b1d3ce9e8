// Attention of a few query rows over spans of the keys and values of one KV head.
#pragma once
#include "attention.h"

struct Span { int from, to; };  // positions that a query row sees

// Scores of one row, scaled: masked outside its span, turned into weights in place. Returns 1 / their sum.
static inline float softmax_row(float* p, int begin, int width, Span span) {
  const vf none = (vf){} - INFINITY;
  vi lane;
  for (int i = 0; i < LANES; i++) lane[i] = begin + i;
  vf top = none;
  for (int i = 0; i < width; i += LANES) {
    vf v = load(p + i);
    if (begin + i < span.from || begin + i + LANES > span.to) {
      vi at = lane + i;
      v = at >= span.from ? (at < span.to ? v : none) : none;
      save(p + i, v);
    }
    top = v > top ? v : top;
  }
  float most = -INFINITY;
  for (int i = 0; i < LANES; i++) most = std::max(most, top[i]);
  vf total = {};
  for (int i = 0; i < width; i += LANES) {
    vf e = most == -INFINITY ? (vf){} : vexp(load(p + i) - most);
    total += e;
    save(p + i, e);
  }
  float z = sum(total);
  return z > 0 ? 1.0f / z : 0.0f;
}

// acc[m][b] += weight[m][j] * value block b of position j, for NB blocks of MB rows.
template <class T, int MB, int NB>
static inline void weigh(const float* const p[MB], const T* values, int vs, int from, int to, vf acc[MB][NB][VECS]) {
  vf sums[MB][NB][VECS];
  memcpy(sums, acc, sizeof sums);
  for (int j = from; j < to; j++) {
    vf v[NB][VECS];
    for (int b = 0; b < NB; b++) read_block(values + (int64_t)j * vs + b * BLOCK, v[b]);
    for (int m = 0; m < MB; m++) {
      vf w = p[m][j] - (vf){};
      for (int b = 0; b < NB; b++)
        for (int i = 0; i < VECS; i++) sums[m][b][i] += w * v[b][i];
    }
  }
  memcpy(acc, sums, sizeof sums);
}

// NB blocks of the weighted values of MB rows. Each row sums its own span in order of position: neighbours share what
// both see, and what a row does not see is never read for it, whatever it holds.
template <class T, int MB, int NB>
static inline void weigh_rows(const float* const p[MB], const Span* spans, const T* values, int vs, const float* inv, int d, float* const* out) {
  vf acc[MB][NB][VECS] = {};
  int from = spans[0].from, to = spans[0].to;
  for (int m = 1; m < MB; m++) { from = std::max(from, spans[m].from); to = std::min(to, spans[m].to); }
  if (from > to) from = to = spans[0].from;
  auto alone = [&](int m, int begin, int end) {
    const float* row[1] = {p[m]};
    if (begin < end) weigh<T, 1, NB>(row, values + d, vs, begin, end, &acc[m]);
  };
  if (MB > 1) for (int m = 0; m < MB; m++) alone(m, spans[m].from, std::min(from, spans[m].to));
  weigh<T, MB, NB>(p, values + d, vs, from, to, acc);
  if (MB > 1) for (int m = 0; m < MB; m++) alone(m, std::max(to, spans[m].from), spans[m].to);
  for (int m = 0; m < MB; m++)
    for (int b = 0; b < NB; b++)
      for (int i = 0; i < VECS; i++) save(out[m] + d + b * BLOCK + i * LANES, acc[m][b][i] * inv[m]);
}

// s[m][n] = x[m] . keys[n] of MB rows and `count` keys, NB keys at a time; its own function, so that sums stay in registers.
template <class T, int NB, int MB>
__attribute__((noinline)) static void score_rows(const T* keys, int D, int count, const float* x, float* s, int width) {
  for (int n = 0; n < count; n += NB) {
    float out[NB][MB];
    dot_tile<T, NB, MB>(keys + (int64_t)n * D, D, count - n, x, D, D, out);
    for (int a = 0; a < std::min(NB, count - n); a++)
      for (int m = 0; m < MB; m++) s[(size_t)m * width + n + a] = out[a][m];
  }
}

// MB query rows that share one KV head: out rows are packed and hold sum_j softmax(q . k_j)_j v_j over their spans.
template <class T, int MB>
static void attend_spans(int D, const float* const* q, const T* keys, const T* values, const Span* spans, float* const* out) {
  int begin = spans[0].from, end = spans[0].to;
  for (int m = 1; m < MB; m++) { begin = std::min(begin, spans[m].from); end = std::max(end, spans[m].to); }
  begin = begin / LANES * LANES;  // a position is summed in the same lane whatever else is in the call
  int width = (end - begin + LANES - 1) / LANES * LANES;
  float* xs = score_scratch.need((size_t)MB * (width + D));
  float *s = xs + MB * D, inv[MB];
  const float* p[MB];
  for (int m = 0; m < MB; m++) memcpy(xs + m * D, q[m], D * sizeof(float));
  score_rows<T, (MB == 1 ? 8 : 2), MB>(keys + (int64_t)begin * D, D, end - begin, xs, s, width);
  for (int m = 0; m < MB; m++) {
    float* row = s + (size_t)m * width;
    for (int i = end - begin; i < width; i++) row[i] = 0;
    inv[m] = softmax_row(row, begin, width, spans[m]);
    p[m] = row - begin;
  }
  int d = 0;
  if (MB == 1) for (; d + 4 * BLOCK <= D; d += 4 * BLOCK) weigh_rows<T, 1, 4>(p, spans, values, D, inv, d, out);
  for (; d + 2 * BLOCK <= D; d += 2 * BLOCK)
    for (int m = 0; m < MB; m += MB > 1 ? 2 : 1) weigh_rows<T, (MB > 1 ? 2 : 1), 2>(p + m, spans + m, values, D, inv + m, d, out + m);
  for (; d < D; d += BLOCK)
    for (int m = 0; m < MB; m++) weigh_rows<T, 1, 1>(p + m, spans + m, values, D, inv + m, d, out + m);
}
