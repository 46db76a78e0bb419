// model [--slow]: explores every model, and each with its mutants, which must be caught. Prints a line for each.
#include <cstdio>
#include <cstring>
#include <exception>

#include "models.hpp"

int main(int argc, char** argv) {
  using namespace model;
  const bool slow = argc > 1 && std::strcmp(argv[1], "--slow") == 0;
  int wrong = 0, explored = 0;
  for (const auto& family : {message_models(), stream_models(), doorbell_models(), record_models(),
                             poison_models(), survivor_models()})
    for (const Model& one : family) {
      if (one.slow && !slow) continue;
      std::vector<std::string> runs{""};
      runs.insert(runs.end(), one.mutants.begin(), one.mutants.end());
      for (const std::string& mutant : runs) {
        ++explored;
        try {
          const Outcome outcome = explore(one.build(mutant));
          const bool right = outcome.violation.empty() == mutant.empty();
          wrong += !right;
          std::printf("%s  %-48s %-28s %8zu states  %s\n", right ? "ok   " : "WRONG", one.name.c_str(),
                      mutant.c_str(), outcome.states,
                      outcome.violation.empty() ? "no violation" : outcome.violation.c_str());
          if (!right)
            for (const std::string& line : outcome.trace) std::printf("         %s\n", line.c_str());
        } catch (const std::exception& error) {
          ++wrong;
          std::printf("WRONG  %s %s: %s\n", one.name.c_str(), mutant.c_str(), error.what());
        }
        std::fflush(stdout);
      }
    }
  std::printf("%d explored, %d wrong\n", explored, wrong);
  return wrong ? 1 : 0;
}
