// Axes, ticks, lines and marks of a plot.
#include "cli/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cli/escape_xml.h"

namespace kvfork::cli {
namespace {

// In units of the view box; small, so that text stays readable on a phone.
constexpr double kWidth = 440;
constexpr double kHeight = 300;
constexpr double kLeft = 66;
constexpr double kRight = 16;
constexpr double kTop = 14;
constexpr double kBottom = 44;

class Axis {
 public:
  Axis(Scale scale, double low, double high, double from, double to) : scale_(scale), from_(from), to_(to) {
    if (scale == Scale::Log) {
      low = std::max(low, std::numeric_limits<double>::min());
      high = std::max(high, low);
      low_ = std::log10(low);
      high_ = std::log10(high);
      const double margin = std::max(0.05 * (high_ - low_), 0.05);
      low_ -= margin;
      high_ += margin;
    } else {
      low_ = 0;
      high_ = high > 0 ? high * 1.05 : 1;
    }
  }

  double place(double value) const {
    const double v = scale_ == Scale::Log ? std::log10(std::max(value, std::numeric_limits<double>::min())) : value;
    return from_ + (to_ - from_) * (v - low_) / (high_ - low_);
  }

  std::vector<double> ticks() const { return scale_ == Scale::Log ? log_ticks() : linear_ticks(); }

 private:
  std::vector<double> linear_ticks() const {
    const double rough = high_ / 5;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    const double step = power * (rough / power < 1.5 ? 1 : rough / power < 3.5 ? 2 : rough / power < 7.5 ? 5 : 10);
    std::vector<double> ticks;
    for (int i = 0; i * step <= high_; ++i) ticks.push_back(i * step);
    return ticks;
  }

  // Powers of ten; between them 2 and 5 where there are few, and only every second or third power where there are
  // many.
  std::vector<double> log_ticks() const {
    const double range = high_ - low_;
    const int stride = std::max(1, static_cast<int>(std::ceil(range / 6)));
    std::vector<double> ticks;
    for (int power = static_cast<int>(std::floor(low_)); power <= high_; ++power) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        if ((factor != 1.0 && range > 2.2) || (factor == 1.0 && power % stride != 0)) continue;
        const double log = power + std::log10(factor);
        if (log >= low_ && log <= high_) ticks.push_back(factor * std::pow(10, power));
      }
    }
    return ticks;
  }

  Scale scale_;
  double from_;
  double to_;
  double low_;
  double high_;
};

std::string text(double x, double y, const char* css_class, const std::string& content) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>", css_class, x, y,
                     escape_xml(content));
}

std::string line(double x1, double y1, double x2, double y2, const std::string& css_class) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>", css_class, x1,
                     y1, x2, y2);
}

// Circles for the first series, squares for others: told apart without colour.
std::string mark(double x, double y, const PlotSeries& series, bool is_first, const std::string& note) {
  const std::string title = note.empty() ? "" : fmt::format("<title>{}</title>", escape_xml(note));
  if (is_first)
    return fmt::format("<circle class=\"mark {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\">{}</circle>",
                       series.css_class, x, y, title);
  return fmt::format("<rect class=\"mark {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"7\" height=\"7\">{}</rect>",
                     series.css_class, x - 3.5, y - 3.5, title);
}

}  // namespace

std::string make_svg(const Plot& plot) {
  double x_low = std::numeric_limits<double>::infinity();
  double y_low = x_low;
  double x_high = 0;
  double y_high = 0;
  for (const PlotSeries& series : plot.series) {
    for (const PlotPoint& point : series.points) {
      x_low = std::min(x_low, point.x);
      x_high = std::max(x_high, point.x);
      y_low = std::min({y_low, point.y, point.low > 0 ? point.low : point.y});
      y_high = std::max({y_high, point.y, point.high});
    }
  }
  const Axis x(plot.x_scale, x_low, x_high, kLeft, kWidth - kRight);
  const Axis y(plot.y_scale, y_low, y_high, kHeight - kBottom, kTop);
  std::string svg = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">", kWidth, kHeight,
                                escape_xml(plot.title));
  for (const double tick : y.ticks()) {
    svg += line(kLeft, y.place(tick), kWidth - kRight, y.place(tick), "grid");
    svg += text(kLeft - 7, y.place(tick) + 4, "tick end", plot.show_y(tick));
  }
  for (const double tick : x.ticks()) {
    svg += line(x.place(tick), kHeight - kBottom, x.place(tick), kHeight - kBottom + 4, "axis");
    svg += text(x.place(tick), kHeight - kBottom + 18, "tick middle", plot.show_x(tick));
  }
  svg += line(kLeft, kHeight - kBottom, kWidth - kRight, kHeight - kBottom, "axis");
  svg += text((kLeft + kWidth - kRight) / 2, kHeight - 7, "label middle", plot.x_label);
  if (plot.marked_x > 0) {
    const double at = x.place(plot.marked_x);
    svg += line(at, kTop, at, kHeight - kBottom, "marked");
    svg += text(at + 6, kTop + 10, "label", plot.marked_text);
  }
  for (const PlotSeries& series : plot.series) {
    std::string path;
    for (const PlotPoint& point : series.points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x.place(point.x), y.place(point.y));
    svg += fmt::format("<path class=\"line {}\" d=\"{}\"/>", series.css_class, path);
    const bool is_first = &series == &plot.series.front();
    for (const PlotPoint& point : series.points) {
      if (point.high > point.low)
        svg += line(x.place(point.x), y.place(point.low), x.place(point.x), y.place(point.high),
                    "whisker " + series.css_class);
      svg += mark(x.place(point.x), y.place(point.y), series, is_first, point.note);
    }
  }
  return svg + "</svg>";
}

}  // namespace kvfork::cli
