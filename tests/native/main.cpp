// native_tests PLANS COMMAND [--seed N] [--times N]: see commands.hpp.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "commands.hpp"

int main(int argc, char** argv) {
  using namespace pc::test;
  std::string file, command;
  uint64_t seed = 1;
  int times = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--seed" && i + 1 < argc)
      seed = std::strtoull(argv[++i], nullptr, 10);
    else if (word == "--times" && i + 1 < argc)
      times = std::atoi(argv[++i]);
    else
      (file.empty() ? file : command) = word;
  }
  try {
    const auto cases = read_cases(file);
    std::printf("%s --seed %llu --times %d\n", command.c_str(), static_cast<unsigned long long>(seed), times);
    std::fflush(stdout);
    if (command == "plans") {
      run_plans(cases, seed, times);
    } else if (command == "messages") {
      run_messages(seed, times);
    } else if (command == "faults") {
      run_faults(cases, seed, times);
    } else if (command == "fuzz") {
      fuzz_plans(cases, seed, times);
    } else if (command == "cores") {
      run_cores();
    } else {
      std::fprintf(stderr,
                   "usage: native_tests PLANS plans|messages|faults|fuzz|cores [--seed N] [--times N]\n");
      return 2;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "FAILED: %s\n", error.what());
    return 1;
  }
  return 0;
}
