// A whole Transformer encoder, of the real positions of all sources one below the other.

#include "block.h"

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace seqlab {
namespace {

// x: positions of all sources and their features; lengths: how many each source has. Of each block `weights` holds norm,
// q k v, mix; norm, widen, narrow; then the last norm if the norms come before. A matrix is three: weight, scale, bias.
// waves: angles of each position, where the features of queries and keys are turned by them.
at::Tensor encoder(
    const at::Tensor& input, const at::Tensor& lengths, const std::vector<at::Tensor>& all, const at::Tensor& waves,
    int64_t depth, int64_t heads, double epsilon, bool before, int64_t activation) {
  check_tensor("x", input, at::kFloat, {-1, -1});
  const int64_t rows = input.size(0), size = input.size(1);
  TORCH_CHECK(heads > 0 && size > 0 && size % heads == 0, heads, " heads cannot share ", size, " features");
  TORCH_CHECK(depth >= 0 && epsilon >= 0 && 0 <= activation && activation < 3, "an option is out of range");
  check_tensor("lengths", lengths, at::kLong, {-1});
  check_range("lengths", lengths, 0, rows + 1);
  const int64_t head = size / heads, wide = 3 * size, *length = lengths.const_data_ptr<int64_t>();
  int64_t sum = 0, longest = 0;
  for (int64_t b = 0; b < lengths.size(0); ++b) sum += length[b], longest = std::max(longest, length[b]);
  TORCH_CHECK(sum == rows, "lengths of ", sum, " positions for ", rows);
  const bool turned = waves.numel() > 0;
  if (turned) {
    check_tensor("waves", waves, at::kFloat, {-1, head});
    TORCH_CHECK(head % 2 == 0 && waves.size(0) >= longest, "waves must reach to position ", longest);
  }
  Weights weights{all};
  const at::Tensor states = at::empty_like(input);
  float* x = states.mutable_data_ptr<float>();
  std::copy_n(input.const_data_ptr<float>(), rows * size, x);
  static thread_local std::vector<float> room, heard, mixed, three, inner, scores;  // kept from call to call
  for (auto* one : {&room, &heard, &mixed}) one->resize(rows * size);
  three.resize(rows * wide);
  for (int64_t d = 0; d < depth; ++d) {
    const AddNorm own(weights, size, epsilon, before);
    weights.matrix(size).times(own.enter(x, rows, room.data()), rows, three.data());
    for (int64_t b = 0, start = 0; b < lengths.size(0); start += length[b++]) {
      float* from = &three[start * wide];
      if (turned)
        for (int64_t t = 0; t < length[b]; ++t)
          turn(from + t * wide, waves.const_data_ptr<float>() + t * head, 2 * size, head);
      for (int64_t t = 0; t < length[b]; ++t)
        attend(from + t * wide, 0, length[b], heads, head, [&](int64_t u) { return from + u * wide + size; }, size, scores,
               &heard[(start + t) * size]);
    }
    weights.matrix(size).times(heard.data(), rows, mixed.data());
    own.leave(x, mixed.data(), rows);
    const AddNorm last(weights, size, epsilon, before);
    const Matrix widen = weights.matrix(size);
    inner.resize(rows * widen.outputs);
    widen.times(last.enter(x, rows, room.data()), rows, inner.data());
    activate(inner.data(), rows * widen.outputs, activation);
    weights.matrix(widen.outputs).times(inner.data(), rows, mixed.data());
    last.leave(x, mixed.data(), rows);
  }
  if (before) AddNorm(weights, size, epsilon, true).enter(x, rows, x);
  TORCH_CHECK(weights.next == all.size(), all.size() - weights.next, " weights too many");
  return states;
}

}  // namespace
}  // namespace seqlab

TORCH_LIBRARY_FRAGMENT(seqlab, m) {
  m.def(
      "encoder(Tensor x, Tensor lengths, Tensor[] weights, Tensor waves, int depth, int heads, float epsilon, bool before, "
      "int activation) -> Tensor",
      seqlab::encoder);
}
