// Runs a parsed template.
#pragma once

#include <string>
#include <vector>

#include "jinja/builtins/functions.h"
#include "jinja/evaluation/loop.h"
#include "jinja/evaluation/macro.h"
#include "jinja/syntax/ast.h"
#include "jinja/values/runtime.h"

namespace kvfork::jinja {

/// One rendering. `context[i]` is what the caller or the globals give for name number i, Missing where nothing
/// does.
class Evaluator {
 public:
  Evaluator(Runtime& rt, std::vector<Value> context) : rt_(rt), context_(std::move(context)) {}

  std::string run(const Body& body, const FunctionInfo& root);

  Value call_macro(const Macro& macro, CallArgs& args);
  Value call_loop(const Loop& loop, CallArgs& args);

  /// One pass of a loop's test: true when the item in `frame` passes.
  bool passes_test(const Stmt& loop, Frame& frame, const Value& item, Value& kept);

  void enter(const ScopeInfo& scope, Frame& frame);
  Runtime& runtime() noexcept { return rt_; }

 private:
  enum class Flow : uint8_t { Normal, Break, Continue };

  Ref<Frame> make_frame(const FunctionInfo& function, Frame* parent);
  Value& variable(SlotRef slot, Frame& frame);
  void leave(const ScopeInfo& scope, Frame& frame);

  Flow run_body(const Body& body, Frame& frame);
  Flow run_stmt(const Stmt& stmt, Frame& frame);
  void write(const Expr& expr, Frame& frame);
  Flow run_if(const Stmt& stmt, Frame& frame);
  Flow run_for(const Stmt& stmt, Frame& frame);
  Flow iterate(const Stmt& stmt, Frame& frame, const Value& iterable, Loop* loop);
  bool run_items(const Stmt& stmt, Frame& frame, const Value& iterable, Loop* loop);
  Flow run_captured(const Body& body, Frame& frame, std::string& text);
  Flow run_set_block(const Stmt& stmt, Frame& frame);
  Flow run_filter_block(const Stmt& stmt, Frame& frame);
  Flow run_with(const Stmt& stmt, Frame& frame);
  Flow run_scope(const Stmt& stmt, Frame& frame);
  void run_macro(const Stmt& stmt, Frame& frame);
  void run_call_block(const Stmt& stmt, Frame& frame);
  void run_generation(const Stmt& stmt, Frame& frame);
  void run_block(const Stmt& stmt);
  Value render_recursive(const Stmt& stmt, Frame& frame, const Value& iterable, int64_t depth0);
  Value filtered(const Stmt& stmt, Frame& frame, Value iterable);
  Ref<Loop> make_loop(const Stmt& stmt, Frame& frame, const Value& iterable, int64_t depth0);
  Value make_macro(const Stmt& stmt, Frame& frame);

  void assign(const Expr& target, Value value, Frame& frame);
  void check_namespaces(const Expr& target, Frame& frame);
  void export_names(const Stmt& stmt, Frame& frame);

  Value eval(const Expr& expr, Frame& frame);
  Value eval_name(const Expr& expr, Frame& frame);
  Value eval_compare(const Expr& expr, Frame& frame);
  bool compare(CompareOp op, const Value& a, const Value& b);
  Value eval_dict(const Expr& expr, Frame& frame);
  Value eval_concat(const Expr& expr, Frame& frame);
  Value eval_call(const Expr& expr, Frame& frame, const Value* caller);
  Value eval_filter(const Expr& expr, Frame& frame, const Value* operand);
  Value eval_item(const Expr& expr, Frame& frame);
  std::vector<Value> eval_items(const std::vector<ExprPtr>& items, Frame& frame);
  void eval_arguments(const CallSyntax& syntax, Frame& frame, CallArgs& args, const Value* caller = nullptr);
  bool evaluate_test(const Expr& expr, Frame& frame);

  Runtime& rt_;
  std::vector<Value> context_;
  Output* output_ = nullptr;
};

}  // namespace kvfork::jinja
