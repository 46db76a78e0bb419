// Ranks that do not call the same: found in their records, told to all, put into words.
#include <unistd.h>

#include <algorithm>
#include <map>

#include "shm/group.hpp"

namespace pc {

uint64_t Group::disagreement(uint64_t last) const {
  constexpr uint64_t window =
      32;  // a rank that waits for nobody in a call is stopped a few calls later by full headers
  for (uint64_t sequence = last > window ? last - window : 1; sequence <= last; ++sequence) {
    std::optional<uint64_t> first;
    for (int peer = 0; peer < size_; ++peer) {
      const auto fingerprint = fingerprint_of(record(peer, sequence), sequence);
      if (first && fingerprint && *fingerprint != *first) return sequence;
      if (fingerprint) first = fingerprint;
    }
  }
  return 0;
}

void Group::raise_mismatch(uint64_t noticed) {
  const uint64_t found = disagreement(noticed), sequence = found ? found : noticed;
  if (mirror_) mirror_->publish_record(sequence);
  poison(ErrorKind::mismatch);
  // Those who are about to come record their call before they look at the poison.
  const uint64_t until = now_ns() + 100'000'000;
  for (int peer = 0; peer < size_; ++peer)
    while (record(peer, sequence).sequence.load(std::memory_order_acquire) < sequence && now_ns() < until &&
           gone(peer).empty())
      if (!progress_all()) usleep(1000);
  struct Saying {
    std::string text, algorithm;
    std::vector<int> ranks;
    std::map<std::string, std::vector<int>> sites;
  };
  std::map<uint64_t, Saying> said;
  std::vector<int> silent;
  for (int peer = 0; peer < size_; ++peer) {
    const auto call = read_call(recorder(peer), sequence);
    if (!call) {
      silent.push_back(peer);
      continue;
    }
    Saying& same = said[call->fingerprint];
    same.text = call->text();
    same.algorithm = call->kind ? call->kind->algorithm : "";
    same.ranks.push_back(peer);
    if (!call->site.empty()) same.sites[call->site].push_back(peer);
  }
  std::vector<Saying> sayings;
  std::map<std::string, std::string> calls;
  bool by_algorithm = false, alike = false;
  for (auto& [fingerprint, saying] : said) {
    const auto [known, added] = calls.try_emplace(saying.text, saying.algorithm);
    by_algorithm |= !added && known->second != saying.algorithm;
    alike |= !added && known->second == saying.algorithm;
    sayings.push_back(std::move(saying));
  }
  std::stable_sort(sayings.begin(), sayings.end(),
                   [](const Saying& a, const Saying& b) { return a.ranks.size() < b.ranks.size(); });
  std::string text;
  for (const Saying& saying : sayings) {
    text += (text.empty() ? "" : " while ") + list_ranks(saying.ranks) + " called " + saying.text;
    if (by_algorithm) text += " by " + saying.algorithm;
    const char* before = " at ";
    for (const auto& [site, ranks] : saying.sites) {
      text += before + site + (saying.sites.size() > 1 ? " (" + list_ranks(ranks) + ")" : "");
      before = " and ";
    }
  }
  if (alike)
    text +=
        "; what reads alike differs in algorithm=, the factor of scaled_sum, the function of op(), or the "
        "counts of blocks";
  if (!silent.empty()) text += "; " + list_ranks(silent) + " did neither yet";
  throw Error(ErrorKind::mismatch, "the ranks disagree in call " + std::to_string(sequence) + ": " + text,
              sayings.empty() ? -1 : sayings.front().ranks.front());
}

}  // namespace pc
