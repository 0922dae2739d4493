// The twin of crates/tidegate-sched/examples/decisions.rs for the reference implementation of mClock,
// github.com/ceph/dmclock, which bench/decision-vs-dmclock.py builds it against.
//
//     dmclock VARIANT CLIENTS DECISIONS
//
// VARIANT is `ceph`, with the template parameters that Ceph's OSD uses (tags are computed when a request comes to the
// head of its queue, the clients' parameters are looked up each time), or `default`.

#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "dmclock_server.h"

namespace dmc = crimson::dmclock;

constexpr uint64_t backlog = 4;
constexpr double step = 1e-6;
constexpr uint64_t weights = 7;
constexpr double reserved = 0.5;
constexpr double limit = 1.5;

template <bool delayed, bool dynamic>
int run(uint64_t clients, uint64_t decisions) {
  using Queue = dmc::PullPriorityQueue<uint64_t, uint64_t, delayed, dynamic, 2>;
  const double mean = 1.0 / step / double(clients);
  std::vector<dmc::ClientInfo> infos;
  for (uint64_t client = 0; client < clients; ++client) {
    // Small weights: tags by weight, 1/w apart in time, must run ahead of the time or they say nothing.
    infos.emplace_back(reserved * mean, double(client % weights + 1), limit * mean);
  }
  Queue queue([&infos](const uint64_t& client) { return &infos[client]; }, dmc::AtLimit::Wait);
  const dmc::ReqParams alone;
  // Counted in steps, so that no error adds up: a double holds microseconds of a second or so to within 1e-16.
  uint64_t steps = 1'000'000;
  const auto now = [&steps] { return double(steps) * step; };
  for (uint64_t client = 0; client < clients; ++client) {
    for (uint64_t request = 0; request < backlog; ++request) {
      queue.add_request_time(client * backlog + request, client, alone, now());
    }
  }
  std::array<uint64_t, weights> served{};
  for (uint64_t decision = 0; decision < decisions; ++decision) {
    ++steps;
    auto pulled = queue.pull_request(now());
    if (pulled.is_retn()) {
      auto& given = pulled.get_retn();
      const uint64_t client = given.client;
      // The request itself goes back: the library allocates nothing for it.
      queue.add_request(std::move(given.request), client, alone, now(), 1u);
      ++served[client % weights];
    }
  }
  const char* before = "[";
  for (uint64_t count : served) {
    std::cout << before << count;
    before = ", ";
  }
  std::cout << "]" << std::endl;
  return 0;
}

int main(int count, char** words) {
  if (count != 4) {
    std::cerr << "dmclock ceph|default CLIENTS DECISIONS" << std::endl;
    return 2;
  }
  const uint64_t clients = std::strtoull(words[2], nullptr, 10);
  const uint64_t decisions = std::strtoull(words[3], nullptr, 10);
  return words[1] == std::string("ceph") ? run<true, true>(clients, decisions) : run<false, false>(clients, decisions);
}
