#include "core/plan.hpp"

#include <string>

#include "core/error.hpp"

namespace pc {
namespace {

void require(bool ok, const char* what) {
  if (!ok) throw Error(ErrorKind::schedule, std::string("damaged plan: ") + what);
}

bool inside(uint64_t first, uint64_t count, size_t size) { return first + count <= size; }

}  // namespace

void Plan::validate() const {
  require(size > 0 && rank >= 0 && rank < size, "rank");
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
  for (const Channel& c : channels) {
    require(inside(c.instruction, c.ninstructions, instructions.size()), "channel");
    require(inside(c.connection, c.nconnections, connections.size()) && c.nconnections <= max_connections,
            "connections");
    for (uint32_t i = 0; i < c.ninstructions; ++i) {
      const Instruction& in = instructions[c.instruction + i];
      require(in.noperands > 0 && inside(in.operand, in.noperands, operands.size()), "operands");
      require(in.nrefs > 0 && in.nrefs <= max_message && inside(in.shape, in.nrefs, refs.size()), "message");
      require(in.store < 0 || inside(static_cast<uint32_t>(in.store), in.nrefs, refs.size()), "store");
      require(in.connection < 0 || static_cast<uint32_t>(in.connection) < c.nconnections,
              "connection of an instruction");
      for (uint32_t k = 0; k < in.noperands; ++k) {
        const Operand& op = operands[in.operand + k];
        require(op.peer < size && op.peer != rank, "source");
        require(op.peer >= 0 || inside(op.refs, in.nrefs, refs.size()), "operand");
      }
    }
  }
}

}  // namespace pc
