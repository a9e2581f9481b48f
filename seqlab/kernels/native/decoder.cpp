// One token further through a whole Transformer decoder: embedding, positions, blocks, last norm, logits.
//
// Keys and values of earlier tokens lie where they were written and are never moved: `table` says of each row and each
// position in whose row of the cache its keys and values stand, so that a beam in another order is another table.

#include "block.h"

#include <ATen/ops/empty.h>
#include <cmath>
#include <limits>
#include <torch/library.h>

namespace seqlab {
namespace {


// token: one for each row; its vector is `scale` times a row of the embedding, plus the vector of this position if there
// is one. `weights` holds the norm of these, if there is one (`entrance`), and of each block norm, q k v, mix; where there is a source norm, q, mix; norm, widen,
// narrow; then the last norm if the norms come before; then the output's. A matrix is three: weight, scale, bias.
// cache: depth, positions, rows, keys and values side by side; past: rows, positions up to the one before. The table
// up to this position is returned with the logits.
// source: which rows of `cross` (depth, sources, positions, keys and values) the rows look at, so many rows for each.
std::tuple<at::Tensor, at::Tensor> decoder_step(
    const at::Tensor& token, const at::Tensor& embedding, double scale, const at::Tensor& position,
    const std::vector<at::Tensor>& all, const at::Tensor& cache, const at::Tensor& past, const at::Tensor& source,
    const at::Tensor& cross, const at::Tensor& lengths, const at::Tensor& waves,
    int64_t heads, double epsilon, bool entrance, bool before, int64_t activation, int64_t window) {
  check_tensor("token", token, at::kLong, {-1});
  check_tensor("embedding", embedding, at::kFloat, {-1, -1});
  check_range("token", token, 0, embedding.size(0));
  const int64_t rows = token.size(0), size = embedding.size(1);
  if (position.numel()) check_tensor("position", position, at::kFloat, {size});
  TORCH_CHECK(heads > 0 && size > 0 && size % heads == 0, heads, " heads cannot share ", size, " features");
  TORCH_CHECK(epsilon >= 0 && 0 <= activation && activation < 3 && window >= 0, "an option is out of range");
  check_tensor("cache", cache, at::kFloat, {-1, -1, -1, 2 * size});
  check_tensor("past", past, at::kLong, {rows, -1});
  const int64_t head = size / heads, wide = 2 * size, depth = cache.size(0), places = cache.size(2), now = past.size(1);
  TORCH_CHECK(now < cache.size(1) && rows <= places, "the cache has no room for this step");
  check_range("past", past, 0, places);
  const bool looks = cross.dim() == 4;
  if (looks) {
    check_tensor("cross", cross, at::kFloat, {depth, -1, -1, wide});
    check_tensor("lengths", lengths, at::kLong, {cross.size(1)});
    check_range("lengths", lengths, 0, cross.size(2) + 1);
    check_tensor("source", source, at::kLong, {-1});
    check_range("source", source, 0, cross.size(1));
    TORCH_CHECK(source.size(0) ? rows % source.size(0) == 0 : rows == 0, rows, " rows of ", source.size(0), " sources");
  }
  if (waves.numel()) {
    TORCH_CHECK(head % 2 == 0, "heads of ", head, " features cannot be turned");
    check_tensor("waves", waves, at::kFloat, {head});
  }
  const int64_t first = window > 0 ? std::max<int64_t>(0, now + 1 - window) : 0;
  const at::Tensor table = at::empty({rows, now + 1}, past.options());
  int64_t* where = table.mutable_data_ptr<int64_t>();
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(past.const_data_ptr<int64_t>() + r * now, now, where + r * (now + 1));
    where[r * (now + 1) + now] = r;
  }
  const float* angles = waves.numel() ? waves.const_data_ptr<float>() : nullptr;
  Weights weights{all};
  static thread_local std::vector<float> x, room, heard, mixed, three, inner, scores;  // kept from step to step
  for (auto* one : {&x, &room, &heard, &mixed}) one->resize(rows * size);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = embedding.const_data_ptr<float>() + token.const_data_ptr<int64_t>()[r] * size;
    const float* place = position.numel() ? position.const_data_ptr<float>() : nullptr;
    for (int64_t i = 0; i < size; ++i) x[r * size + i] = from[i] * static_cast<float>(scale) + (place ? place[i] : 0.0f);
  }
  if (entrance) AddNorm(weights, size, epsilon, true).enter(x.data(), rows, x.data());
  three.resize(rows * 3 * size);
  for (int64_t d = 0; d < depth; ++d) {
    float* kept = cache.mutable_data_ptr<float>() + d * cache.size(1) * places * wide;
    const AddNorm own(weights, size, epsilon, before);
    weights.matrix(size).times(own.enter(x.data(), rows, room.data()), rows, three.data());
    for (int64_t r = 0; r < rows; ++r) {
      float *q = &three[r * 3 * size], *to = kept + (now * places + r) * wide;
      if (angles) turn(q, angles, wide, head);
      std::copy(q + size, q + 3 * size, to);
    }
    for (int64_t r = 0; r < rows; ++r)
      attend(&three[r * 3 * size], first, now + 1, heads, head,
             [&](int64_t t) { return kept + (t * places + where[r * (now + 1) + t]) * wide; }, size, scores,
             &heard[r * size]);
    weights.matrix(size).times(heard.data(), rows, mixed.data());
    own.leave(x.data(), mixed.data(), rows);
    if (looks) {
      const AddNorm across(weights, size, epsilon, before);
      weights.matrix(size).times(across.enter(x.data(), rows, room.data()), rows, mixed.data());
      const int64_t each = rows / source.size(0), span = cross.size(2);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t from = source.const_data_ptr<int64_t>()[r / each];
        const float* memory = cross.const_data_ptr<float>() + (d * cross.size(1) + from) * span * wide;
        attend(&mixed[r * size], 0, lengths.const_data_ptr<int64_t>()[from], heads, head,
               [&](int64_t t) { return memory + t * wide; }, size, scores, &heard[r * size]);
      }
      weights.matrix(size).times(heard.data(), rows, mixed.data());
      across.leave(x.data(), mixed.data(), rows);
    }
    const AddNorm last(weights, size, epsilon, before);
    const Matrix widen = weights.matrix(size);
    inner.resize(rows * widen.outputs);
    widen.times(last.enter(x.data(), rows, room.data()), rows, inner.data());
    activate(inner.data(), rows * widen.outputs, activation);
    weights.matrix(widen.outputs).times(inner.data(), rows, mixed.data());
    last.leave(x.data(), mixed.data(), rows);
  }
  const float* features = x.data();
  if (before) features = AddNorm(weights, size, epsilon, before).enter(x.data(), rows, room.data());
  const Matrix output = weights.matrix(size);
  TORCH_CHECK(weights.next == all.size(), all.size() - weights.next, " weights too many");
  at::Tensor logits = at::empty({rows, output.outputs}, embedding.options());
  output.times(features, rows, logits.mutable_data_ptr<float>());
  return {logits, table};
}

}  // namespace
}  // namespace seqlab

TORCH_LIBRARY_FRAGMENT(seqlab, m) {
  m.def(
      "decoder_step(Tensor token, Tensor embedding, float scale, Tensor position, Tensor[] weights, Tensor(a!) cache, "
      "Tensor past, Tensor source, Tensor cross, Tensor lengths, Tensor waves, int heads, float epsilon, bool entrance, "
      "bool before, int activation, int window) -> (Tensor, Tensor)",
      seqlab::decoder_step);
}
