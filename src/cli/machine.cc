// Processor, memory, load and clock of this machine.
#include "cli/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

namespace kvfork::cli {
namespace {

std::string read_cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

size_t count_cores() {
  cpu_set_t cores;
  if (::sched_getaffinity(0, sizeof(cores), &cores) == 0) return static_cast<size_t>(CPU_COUNT(&cores));
  return static_cast<size_t>(::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

Machine read_machine() {
  Machine machine;
  machine.cpu = read_cpu_name();
  machine.n_cores = count_cores();
  machine.memory_bytes =
      static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  utsname name{};
  if (::uname(&name) == 0) machine.system = fmt::format("{} {} {}", name.sysname, name.release, name.machine);
  std::ifstream governor("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  std::getline(governor, machine.governor);
  return machine;
}

Load read_load() {
  double averages[2] = {0, 0};
  if (::getloadavg(averages, 2) != 2) return {};
  return {.one_minute = averages[0], .five_minutes = averages[1]};
}

std::string read_clock() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &local);
  return text;
}

}  // namespace kvfork::cli
