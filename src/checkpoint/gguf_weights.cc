// Dequantizes and reorders the tensors of a GGUF file that cannot be used where they lie.
#include "checkpoint/gguf_weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <system_error>
#include <thread>
#include <unordered_map>

#include "base/error.h"

namespace kvfork::checkpoint {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kChunkBytes = size_t{1} << 20;

std::optional<DType> find_stored_dtype(const GgmlType& type) {
  if (type.name == "F32" || type.name == "F16" || type.name == "BF16") return find_dtype(type.name);
  return std::nullopt;
}

// A tensor to be written to memory of our own, row by row.
struct Job {
  const GgufTensor* tensor = nullptr;
  std::byte* out = nullptr;
  size_t n_rows = 0;
  size_t row_blocks = 0;
  size_t row_in_bytes = 0;
  size_t row_out_bytes = 0;
  bool is_copied = false;    // stored type is kept
  size_t permuted_head = 0;  // rows of a head whose halves are interleaved; 0 for none

  // Where output row `row` lies in the file: Transformers' LlamaTensorProcessor, reshape(heads, head_dim/2, 2)
  // and swap of the last two.
  size_t source_row(size_t row) const {
    if (permuted_head == 0) return row;
    const size_t half = permuted_head / 2;
    const size_t in_head = row % permuted_head;
    return row - in_head + 2 * (in_head % half) + in_head / half;
  }

  void write_rows(size_t begin, size_t end) const noexcept {
    for (size_t row = begin; row < end; ++row) {
      const std::byte* in = tensor->data + source_row(row) * row_in_bytes;
      std::byte* to = out + row * row_out_bytes;
      if (is_copied) {
        std::memcpy(to, in, row_in_bytes);
      } else {
        tensor->type->dequantize(in, row_blocks, reinterpret_cast<float*>(to));
      }
    }
  }
};

struct Chunk {
  const Job* job;
  size_t begin;
  size_t end;
};

void run_jobs(const std::vector<Job>& jobs, size_t n_threads) {
  std::vector<Chunk> chunks;
  for (const Job& job : jobs) {
    const size_t step = std::max<size_t>(1, kChunkBytes / std::max<size_t>(1, job.row_out_bytes));
    for (size_t row = 0; row < job.n_rows; row += step)
      chunks.push_back({&job, row, std::min(row + step, job.n_rows)});
  }
  std::atomic<size_t> next{0};
  const auto work = [&]() noexcept {
    for (size_t i = next.fetch_add(1); i < chunks.size(); i = next.fetch_add(1))
      chunks[i].job->write_rows(chunks[i].begin, chunks[i].end);
  };
  std::vector<std::thread> helpers;
  const size_t n_helpers = std::min(n_threads, chunks.size()) - std::min<size_t>(1, chunks.size());
  helpers.reserve(n_helpers);
  try {
    while (helpers.size() < n_helpers) helpers.emplace_back(work);
  } catch (const std::exception&) {
    // Fewer threads than asked for: slower, and the same result.
  }
  work();
  for (std::thread& helper : helpers) helper.join();
}

size_t permuted_head_rows(const TensorSpec& tensor) {
  return tensor.arrangement == Arrangement::InterleavedHalves ? tensor.head_rows : 0;
}

// A reordered vector moves single elements, which only unquantized types have.
bool is_supported(const GgufTensor& tensor, const TensorSpec* needed) {
  if (tensor.type == nullptr || tensor.type->dequantize == nullptr) return false;
  return tensor.shape.size() > 1 || tensor.type->block_elements == 1 || needed == nullptr ||
         permuted_head_rows(*needed) == 0;
}

Job make_job(const GgufTensor& tensor, size_t permuted_head) {
  Job job;
  job.tensor = &tensor;
  job.is_copied = find_stored_dtype(*tensor.type).has_value();
  job.permuted_head = permuted_head;
  const bool is_vector = tensor.shape.size() < 2;
  job.n_rows = is_vector && permuted_head == 0 ? 1 : static_cast<size_t>(tensor.shape.front());
  const auto n_elements = static_cast<size_t>(*count_elements(tensor.shape));
  const size_t row_elements = n_elements / job.n_rows;
  job.row_blocks = row_elements / tensor.type->block_elements;
  job.row_in_bytes = job.row_blocks * tensor.type->block_bytes;
  job.row_out_bytes = job.is_copied ? job.row_in_bytes : row_elements * sizeof(float);
  return job;
}

size_t align_up(size_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

GgufWeights load_gguf_weights(const GgufFile& file, const ModelConfig& config, size_t n_threads) {
  const ModelSpec& spec = config.spec;
  std::unordered_map<std::string_view, const TensorSpec*> needed;
  for (const TensorSpec& tensor : spec.tensors) needed.emplace(tensor.file_name, &tensor);
  std::vector<FoundTensor> found;
  std::unordered_map<std::string_view, const GgufTensor*> by_name;
  for (const GgufTensor& tensor : file.tensors()) {
    by_name.emplace(tensor.name, &tensor);
    const auto use = needed.find(tensor.name);
    found.push_back({tensor.name, tensor.shape,
                     tensor.type == nullptr ? std::string_view("an unknown type") : tensor.type->name,
                     is_supported(tensor, use == needed.end() ? nullptr : use->second)});
  }
  check_tensors(found, spec, config.architecture, file.subject());

  GgufWeights result;
  std::vector<Job> jobs;
  std::vector<size_t> job_weights;
  size_t n_bytes = 0;
  for (const TensorSpec& use : spec.tensors) {
    const GgufTensor& tensor = *by_name.at(use.file_name);
    const auto stored = find_stored_dtype(*tensor.type);
    const size_t permuted_head = permuted_head_rows(use);
    result.weights.push_back({use.name, stored.value_or(DType::F32), tensor.shape, tensor.data});
    if (stored && permuted_head == 0) continue;
    jobs.push_back(make_job(tensor, permuted_head));
    job_weights.push_back(result.weights.size() - 1);
    n_bytes += align_up(jobs.back().n_rows * jobs.back().row_out_bytes);
  }
  result.memory = base::MemoryRegion::allocate(n_bytes, file.subject());
  // 2 MiB pages make the first touch of this memory several times cheaper; a refusal costs nothing else.
  if (n_bytes > 0) ::madvise(result.memory.data(), result.memory.size(), MADV_HUGEPAGE);
  std::byte* out = result.memory.data();
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].out = out;
    result.weights[job_weights[i]].data = out;
    out += align_up(jobs[i].n_rows * jobs[i].row_out_bytes);
  }
  run_jobs(jobs, n_threads);
  result.memory.make_read_only();
  return result;
}

}  // namespace kvfork::checkpoint
