// strftime without a locale, for strftime_now.
#include "jinja/builtins/clock.h"

#include <locale.h>

#include <chrono>
#include <ctime>

#include "base/error.h"

namespace kvfork::jinja {
namespace {

bool is_leap(int year) {
  return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

int days_in_month(int year, int month) {
  static const int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return kDays[month - 1] + (month == 2 && is_leap(year) ? 1 : 0);
}

int day_of_year(const LocalTime& time) {
  int days = time.day;
  for (int month = 1; month < time.month; ++month) days += days_in_month(time.year, month);
  return days;
}

std::tm to_tm(const LocalTime& time) {
  std::tm out{};
  out.tm_year = time.year - 1900;
  out.tm_mon = time.month - 1;
  out.tm_mday = time.day;
  out.tm_hour = time.hour;
  out.tm_min = time.minute;
  out.tm_sec = time.second;
  out.tm_yday = day_of_year(time) - 1;
  int y = time.year - 1;
  out.tm_wday = (y + y / 4 - y / 100 + y / 400 + day_of_year(time)) % 7;
  out.tm_isdst = -1;
  return out;
}

}  // namespace

LocalTime parse_local_time(std::string_view text) {
  LocalTime time;
  std::string copy(text);
  char separator = 0;
  int used = 0;
  int n = std::sscanf(copy.c_str(), "%4d-%2d-%2d%n%c%2d:%2d:%2d%n", &time.year, &time.month, &time.day, &used,
                      &separator, &time.hour, &time.minute, &time.second, &used);
  bool complete =
      (n == 3 || (n == 7 && (separator == 'T' || separator == ' '))) && static_cast<size_t>(used) == copy.size();
  if (!complete || time.year < 1 || time.month < 1 || time.month > 12 || time.day < 1 ||
      time.day > days_in_month(time.year, time.month) || time.hour < 0 || time.hour > 23 || time.minute < 0 ||
      time.minute > 59 || time.second < 0 || time.second > 59) {
    base::fail(ErrorCode::InvalidArgument, "the clock: expected a local time like 2031-01-05T06:07:08, found '{}'",
               text);
  }
  return time;
}

LocalTime system_local_time() {
  auto now = std::chrono::system_clock::now();
  std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  std::tm local{};
  localtime_r(&seconds, &local);
  LocalTime time;
  time.year = local.tm_year + 1900;
  time.month = local.tm_mon + 1;
  time.day = local.tm_mday;
  time.hour = local.tm_hour;
  time.minute = local.tm_min;
  time.second = local.tm_sec;
  auto since = now - std::chrono::system_clock::from_time_t(seconds);
  time.microsecond = static_cast<int>(std::chrono::duration_cast<std::chrono::microseconds>(since).count());
  return time;
}

std::string format_time(Runtime& rt, const LocalTime& time, std::string_view format) {
  std::tm broken = to_tm(time);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    std::string directive = {'%', format[++i]};
    if ((format[i] == '-' || format[i] == '_' || format[i] == '0' || format[i] == '^' || format[i] == '#') &&
        i + 1 < format.size()) {
      directive.push_back(format[++i]);
    }
    if (directive == "%f") {
      out += fmt::format("{:06}", time.microsecond);
    } else if (directive == "%z" || directive == "%Z" || directive == "%:") {
      out += directive == "%:" ? ":" : "";  // a naive datetime has no zone
    } else {
      char buffer[256];
      // The C library's strftime in the C locale is what Python calls; a leading space tells an empty result from
      // none.
      static const locale_t kC = ::newlocale(LC_ALL_MASK, "C", nullptr);
      const size_t n = ::strftime_l(buffer, sizeof(buffer), (" " + directive).c_str(), &broken, kC);
      if (n > 0) out.append(buffer + 1, n - 1);
    }
    rt.reserve(out.size());
  }
  return out;
}

}  // namespace kvfork::jinja
