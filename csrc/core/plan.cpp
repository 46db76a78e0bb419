#include "core/plan.hpp"

#include <cstring>
#include <string>
#include <type_traits>

#include "core/error.hpp"

namespace pc {
namespace {

void require(bool ok, const char* what) {
  if (!ok) throw Error(ErrorKind::schedule, std::string("damaged plan: ") + what);
}

bool inside(uint64_t first, uint64_t count, size_t size) { return first + count <= size; }

// A table as structs of 32-bit members.
template <class Row>
std::vector<Row> rows(std::span<const int32_t> table) {
  static_assert(sizeof(Row) % sizeof(int32_t) == 0 && std::is_trivially_copyable_v<Row>);
  constexpr size_t width = sizeof(Row) / sizeof(int32_t);
  require(table.size() % width == 0, "a table has the wrong width");
  std::vector<Row> result(table.size() / width);
  if (!result.empty()) std::memcpy(result.data(), table.data(), result.size() * sizeof(Row));
  return result;
}

}  // namespace

void Plan::decode(const PlanTables& tables) {
  instructions = rows<Instruction>(tables.instructions);
  operands = rows<Operand>(tables.operands);
  refs = rows<Ref>(tables.refs);
  connections = rows<Connection>(tables.connections);
  peers = rows<int32_t>(tables.peers);
  channels = rows<Channel>(tables.channels);
  scratch_like = rows<uint32_t>(tables.scratch_like);
  nscratch = static_cast<uint32_t>(scratch_like.size());
  validate();
}

void Plan::validate() const {
  require(size > 0 && rank >= 0 && rank < size, "rank");
  require(nchunks <= kMostChunks, "too many chunks");
  require(nchunks > 0 && max_message > 0 && max_connections > 0 && steps > 0, "counts");
  require(scratch_like.size() == nscratch, "scratch");
  for (uint32_t like : scratch_like) require(like < nchunks, "scratch size");
  for (const Ref& ref : refs) {
    require(static_cast<size_t>(ref.where) < kPlaces, "place of a chunk");
    require(ref.chunk < (ref.where == Where::scratch ? nscratch : nchunks), "chunk");
  }
  for (int32_t peer : peers) require(peer >= 0 && peer < size && peer != rank, "peer");
  for (const Connection& c : connections)
    require(c.npeers > 0 && inside(c.first, c.npeers, peers.size()), "connection");
  require(!channels.empty(), "no channel");
  for (const Channel& c : channels) {
    require(inside(c.instruction, c.ninstructions, instructions.size()), "channel");
    require(inside(c.connection, c.nconnections, connections.size()) && c.nconnections <= max_connections,
            "connections");
    for (uint32_t i = 0; i < c.ninstructions; ++i) {
      const int32_t connection = instructions[c.instruction + i].connection;
      require(connection < 0 || static_cast<uint32_t>(connection) < c.nconnections,
              "connection of an instruction");
    }
  }
  for (const Instruction& in : instructions) {
    require(in.noperands > 0 && inside(in.operand, in.noperands, operands.size()), "operands");
    require(in.noperands <= static_cast<uint32_t>(size) + 2, "more operands than ranks");
    require(in.nrefs > 0 && in.nrefs <= max_message && inside(in.shape, in.nrefs, refs.size()), "message");
    require(in.store < 0 || inside(static_cast<uint32_t>(in.store), in.nrefs, refs.size()), "store");
    for (uint32_t k = 0; k < in.noperands; ++k) {
      const Operand& op = operands[in.operand + k];
      require(op.peer < size && op.peer != rank, "source");
      require(op.peer >= 0 || inside(op.refs, in.nrefs, refs.size()), "operand");
    }
    const bool points = in.flags & (Instruction::may_point | Instruction::may_point_apart);
    require(!points || in.store >= 0 || operands[in.operand].peer < 0, "a message from no place");
  }
}

}  // namespace pc
