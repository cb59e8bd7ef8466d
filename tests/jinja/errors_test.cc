// What a broken template says: where, and why.
#include <gtest/gtest.h>

#include "tests/jinja/render.h"

namespace kvfork::jinja {
namespace {

using Json = nlohmann::ordered_json;

TEST(TemplateErrors, NameLineAndColumn) {
  EXPECT_EQ(failure("a\n  {{ x.y.z }}", {{"x", Json::object()}}).message,
            "template: line 2, column 9: UndefinedError: 'dict object' has no attribute 'y'");
  EXPECT_EQ(failure("{% if %}").message,
            "template: line 1, column 7: Expected an expression, got 'end of statement block'");
  EXPECT_EQ(failure("é{{ 1 +").message, "template: line 1, column 8: unexpected 'end of template'");
  EXPECT_EQ(failure("\n\n{% for i in 5 %}{% endfor %}").message,
            "template: line 3, column 13: TypeError: 'int' object is not iterable");
  EXPECT_EQ(failure("a\r\nb\r{{ 'x' + 1 }}").message,
            "template: line 3, column 8: TypeError: can only concatenate str (not \"int\") to str");
}

TEST(TemplateErrors, HaveTheTemplateCode) {
  for (const char* source :
       {"{{ x.y }}", "{% nosuch %}", "{{ 'a'|nosuch }}", "{{ 1 / 0 }}", "{{ raise_exception('m') }}"}) {
    EXPECT_EQ(failure(source).code, ErrorCode::Template) << source << failure(source).message;
  }
}

TEST(TemplateErrors, CarryTheRaisedText) {
  Failure found = failure("{{ raise_exception('roles must alternate\\nuser/assistant') }}");
  EXPECT_EQ(found.message, "template: line 1, column 19: roles must alternate\nuser/assistant");
}

TEST(TemplateErrors, NameTagsThatLoadOtherTemplates) {
  for (const char* source : {"{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}",
                             "{% extends 'x' %}", "{% if false %}{% include 'x' %}{% endif %}"}) {
    Failure found = failure(source);
    EXPECT_EQ(found.code, ErrorCode::Unsupported) << source << found.message;
    EXPECT_NE(found.message.find("is not supported"), std::string::npos) << found.message;
  }
  EXPECT_NE(failure("{% include 'x' %}").message.find("'include'"), std::string::npos);
}

TEST(TemplateErrors, KeepTheSandboxClosed) {
  for (const char* source : {"{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ d.update({}) }}",
                             "{{ d.pop('a') }}", "{{ ''['__class__']['__mro__'] }}",
                             "{{ '{0.__class__.__mro__}'.format(1) }}", "{{ (messages|attr('append'))(1) }}"}) {
    Failure found = failure(source, {{"messages", Json::array()}, {"d", {{"a", 1}}}});
    EXPECT_NE(found.message.find("SecurityError"), std::string::npos) << source << "\n" << found.message;
  }
}

TEST(TemplateErrors, RefuseWhatHasNoForm) {
  EXPECT_NE(failure("{{ 9223372036854775807 + 1 }}").message.find("beyond 64 bits"), std::string::npos);
  EXPECT_NE(failure("{{ 2 ** 64 }}").message.find("beyond 64 bits"), std::string::npos);
  EXPECT_NE(failure("{{ '\\ud800' }}").message.find("lone surrogate"), std::string::npos);
  EXPECT_NE(failure("{{ (-8) ** 0.5 }}").message.find("complex"), std::string::npos);
}

TEST(TemplateErrors, RefuseSourceThatIsNotUtf8) {
  Failure found = failure("ab\xFF");
  EXPECT_EQ(found.code, ErrorCode::Corrupt);
  EXPECT_NE(found.message.find("byte 2"), std::string::npos) << found.message;
}

}  // namespace
}  // namespace kvfork::jinja
