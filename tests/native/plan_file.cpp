#include "plan_file.hpp"

#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace pc::test {
namespace {

class Reader {
 public:
  explicit Reader(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    data_.assign(std::istreambuf_iterator<char>(file), {});
    if (data_.empty()) throw std::runtime_error("cannot read " + path);
  }
  bool more() const { return at_ < data_.size(); }
  std::vector<uint64_t> numbers() {
    std::vector<uint64_t> found(word());
    for (uint64_t& each : found) each = word();
    return found;
  }
  template <class Bytes>
  Bytes bytes() {
    const uint64_t size = word();
    const auto* first = reinterpret_cast<const typename Bytes::value_type*>(data_.data() + at_);
    at_ += (size + 7) / 8 * 8;
    return Bytes(first, first + size);
  }

 private:
  uint64_t word() {
    uint64_t value = 0;
    if (at_ + sizeof value > data_.size()) throw std::runtime_error("the file of plans ends too early");
    std::memcpy(&value, data_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }

  std::string data_;
  size_t at_ = 0;
};

}  // namespace

std::vector<Case> read_cases(const std::string& path) {
  Reader reader(path);
  std::vector<Case> cases;
  while (reader.more()) {
    Case one{reader.bytes<std::string>(), {}};
    one.parts.resize(reader.numbers().at(0));
    for (Part& part : one.parts) {
      part.plan = reader.numbers();
      for (auto& table : part.tables)
        for (uint64_t value : reader.numbers()) table.push_back(static_cast<int32_t>(value));
      part.kind = reader.numbers();
      part.held = reader.numbers();
      part.blocks = reader.numbers();
      part.sent = reader.numbers();
      part.taken = reader.numbers();
      part.input = reader.bytes<std::vector<std::byte>>();
      part.wanted = reader.bytes<std::vector<std::byte>>();
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

std::shared_ptr<Prepared> Part::prepare() const {
  const auto small = [](uint64_t value) { return static_cast<uint32_t>(value); };
  auto made = std::make_shared<Plan>();
  made->size = static_cast<int>(plan.at(0));
  made->rank = static_cast<int>(plan.at(1));
  made->nchunks = small(plan.at(2));
  made->max_message = small(plan.at(3));
  made->max_connections = small(plan.at(4));
  made->steps = small(plan.at(5));
  made->waits_for_all = plan.at(6) != 0;
  made->balanced = plan.at(7) != 0;
  made->decode({tables[0], tables[1], tables[2], tables[3], tables[4], tables[5], tables[6]});
  CallKind call;
  call.dtype = static_cast<DType>(kind.at(0) % dtype_count);
  call.op = static_cast<ReduceOp>(kind.at(1) % reduce_op_count);
  call.epilogue = {static_cast<Epilogue::Kind>(kind.at(2) % epilogue_kind_count),
                   std::bit_cast<double>(held.at(4))};
  call.wide = kind.at(3) != 0;
  call.pool_bytes = kind.at(4);
  call.segment_bytes = kind.at(5);
  call.single_copy_bytes = 64;
  call.cache_bytes = 4096;  // so that some data are long
  call.fingerprint = kind.at(6);
  call.count = kind.at(7);
  call.verb = static_cast<uint16_t>(kind.at(8));
  call.algorithm = static_cast<uint16_t>(kind.at(9));
  call.record_dtype = static_cast<uint8_t>(kind.at(10));
  call.record_op = static_cast<uint8_t>(kind.at(11));
  call.root = static_cast<int32_t>(kind.at(12));
  call.deterministic = kind.at(13) != 0;
  call.extent = {
      blocks, sent, taken, {small(held.at(0)), small(held.at(1))}, {small(held.at(2)), small(held.at(3))}};
  return pc::prepare(std::move(made), call);
}

}  // namespace pc::test
