// A head fused with its argmax: the best logit of each row, and what a softmax would give it, without writing logits.
#pragma once
#include "stack.h"

struct Best { float value, mass; int32_t index, pad; };  // mass: sum of exp(logit - value) over what was seen

static thread_local Scratch lane_scratch;

// The better of two, the lower index where they tie; what both saw is summed.
static inline Best better(const Best& a, const Best& b) {
  bool first = a.value > b.value || (a.value == b.value && a.index <= b.index);
  const Best &top = first ? a : b, &other = first ? b : a;
  if (other.value == -INFINITY) return top;
  return {top.value, top.mass + other.mass * std::exp(other.value - top.value), top.index, 0};
}

template <class T> struct Tops {  // of M rows, lane by lane
  struct Lanes { vf value[VECS], mass[VECS]; vi at[VECS]; };
  Lanes* lanes;
  int count;
  bool masses;
  int32_t order[BLOCK];
  Tops(int M, int n, bool masses) : count(n), masses(masses) {
    lanes = (Lanes*)lane_scratch.need((size_t)M * sizeof(Lanes) / sizeof(float));
    for (int m = 0; m < M; m++)
      for (int v = 0; v < VECS; v++) lanes[m].value[v] = (vf){} - INFINITY, lanes[m].mass[v] = (vf){}, lanes[m].at[v] = (vi){};
    for (int i = 0; i < BLOCK; i++) order[packed<T>(i)] = i;
  }
  void add(int m, int n, const vf block[VECS]) {
    Lanes& t = lanes[m];
    for (int v = 0; v < VECS; v++) {
      vf x = rounded<T>(block[v]), old = t.value[v];
      if (n + BLOCK > count)
        for (int l = 0; l < LANES; l++) if (n + order[v * LANES + l] >= count) x[l] = -INFINITY;
      vi above = x > old;
      vf top = above ? x : old;
      if (masses) {
        vf kept = above ? t.mass[v] * vexp(old - top) : t.mass[v];
        t.mass[v] = kept + (x > -INFINITY ? vexp(x - top) : (vf){});
      }
      t.value[v] = top;
      t.at[v] = above ? (vi){} + n : t.at[v];
    }
  }
  Best best(int m) const {
    Best found = {-INFINITY, 0, 0, 0};
    for (int v = 0; v < VECS; v++)
      for (int l = 0; l < LANES; l++) {
        const Lanes& t = lanes[m];
        if (t.value[v][l] > -INFINITY) found = better(found, {t.value[v][l], t.mass[v][l], t.at[v][l] + order[v * LANES + l], 0});
      }
    return found;
  }
};

static inline Best best_of(const Best* parts, int threads, int rows, int m) {
  Best found = parts[m];
  for (int t = 1; t < threads; t++) found = better(found, parts[(size_t)t * rows + m]);
  return found;
}

// parts [threads, M]: the best of this thread's outputs for each packed row.
template <class T> static void head_tops(const Linear& l, const float* rows, int M, bool masses, Best* parts) {
  Tops<T> tops(M, l.n, masses);
  blocks<T>(l, rows, M, [&](int m, int n, const vf b[VECS]) { tops.add(m, n, b); });
  for (int m = 0; m < M; m++) parts[(size_t)omp_get_thread_num() * M + m] = tops.best(m);
}
