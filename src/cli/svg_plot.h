// A line plot as inline SVG. Colours and fonts come from the page's style sheet, by class, so that one plot serves
// light, dark and print.
#pragma once

#include <string>
#include <vector>

namespace kvfork::cli {

struct PlotPoint {
  double x = 0;
  double y = 0;
  double low = 0;  ///< of the whisker; equal to high: none
  double high = 0;
  std::string note;  ///< shown when pointed at
};

struct PlotSeries {
  std::string name;
  std::string css_class;  ///< "cached" or "uncached"
  std::vector<PlotPoint> points;
};

enum class Scale { Linear, Log };

struct Plot {
  std::string title;  ///< also the description for screen readers
  std::string x_label;
  Scale x_scale = Scale::Linear;
  Scale y_scale = Scale::Linear;
  std::string (*show_x)(double) = nullptr;  ///< of tick labels
  std::string (*show_y)(double) = nullptr;
  std::vector<PlotSeries> series;
  double marked_x = 0;  ///< a vertical line with marked_text; 0: none
  std::string marked_text;
};

std::string make_svg(const Plot& plot);

}  // namespace kvfork::cli
