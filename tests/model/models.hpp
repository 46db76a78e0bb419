// The protocols of csrc/shm, scaled down, and what must go wrong when a piece of each is left out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "machine.hpp"

namespace model {

struct Model {
  std::string name;
  std::vector<std::string> mutants;  // each must be caught
  std::function<System(const std::string& mutant)> build;
  bool slow = false;
};

std::vector<Model> message_models();   // messages.cpp: headers, slots, acknowledgements
std::vector<Model> stream_models();    // streams.cpp: point-to-point messages
std::vector<Model> doorbell_models();  // doorbell.cpp: going to sleep and being woken
std::vector<Model>
record_models();  // records.cpp: the flight recorder's records and the agreement before the output
std::vector<Model> poison_models();    // poison.cpp: reading in place from a rank that may give up
std::vector<Model> survivor_models();  // survivors.cpp: agreeing on the ranks that are left

}  // namespace model
