// jinja2's rules of scoping, applied to a parsed template.
#include "jinja/syntax/scope.h"

#include <algorithm>
#include <functional>
#include <map>

#include "jinja/syntax/lexer.h"
#include "jinja/syntax/symbols.h"

namespace kvfork::jinja {
namespace {

template <typename Visit>
void for_each_child(const Expr& expr, const Visit& visit) {
  for (const Expr* child : {expr.a.get(), expr.b.get(), expr.c.get()}) {
    if (child != nullptr) visit(*child);
  }
  for (const ExprPtr& item : expr.items) visit(*item);
  if (!expr.args) return;
  for (const ExprPtr& argument : expr.args->positional) visit(*argument);
  for (const auto& [name, argument] : expr.args->keywords) visit(*argument);
  if (expr.args->star) visit(*expr.args->star);
  if (expr.args->double_star) visit(*expr.args->double_star);
}

class Analyzer {
 public:
  Analyzer(std::string_view source, std::string_view subject) : source_(source), subject_(subject) {}

  Scopes run(Body& body) {
    FunctionScope function;
    FrameScope frame;
    frame.function = &function;
    frame.toplevel = true;
    add_body(frame.symbols, body);
    scopes_.root.scope = finish_scope(frame);
    resolve_body(body, frame);
    scopes_.root.n_slots = count_slots(function);
    return std::move(scopes_);
  }

 private:
  [[noreturn]] void fail(uint32_t offset, std::string_view message) const {
    fail_syntax(subject_, source_, offset, message);
  }

  NameId intern(const std::string& name) {
    auto [found, added] = name_ids_.try_emplace(name, static_cast<NameId>(scopes_.names.size()));
    if (added) scopes_.names.push_back(name);
    return found->second;
  }

  // --- Which names a frame has (jinja2's FrameSymbolVisitor).

  enum class Role { Load, Store, Parameter };

  void add_expr(Symbols& symbols, const Expr& expr, Role role = Role::Load) {
    if (expr.kind == ExprKind::NamespaceRef) return symbols.load(intern(expr.name));
    if (expr.kind == ExprKind::Name) {
      NameId name = intern(expr.name);
      if (role == Role::Load) return symbols.load(name);
      if (role == Role::Store) return symbols.store(name);
      symbols.declare_parameter(name);
      return;
    }
    for_each_child(expr, [&](const Expr& child) { add_expr(symbols, child, role); });
  }
  void add_optional(Symbols& symbols, const ExprPtr& expr) {
    if (expr) add_expr(symbols, *expr);
  }
  void add_body(Symbols& symbols, const Body& body) {
    for (const StmtPtr& stmt : body) add_stmt(symbols, *stmt);
  }

  void add_stmt(Symbols& symbols, const Stmt& stmt) {
    switch (stmt.kind) {
      case StmtKind::Output:
        for (const ExprPtr& item : stmt.items) add_expr(symbols, *item);
        break;
      case StmtKind::Set:
        add_expr(symbols, *stmt.value);
        add_expr(symbols, *stmt.target, Role::Store);
        break;
      case StmtKind::SetBlock:
        add_expr(symbols, *stmt.target, Role::Store);
        break;
      case StmtKind::For:
      case StmtKind::CallBlock:
      case StmtKind::FilterBlock:
        add_expr(symbols, *stmt.value);
        break;
      case StmtKind::If:
        add_if(symbols, stmt);
        break;
      case StmtKind::Macro:
        symbols.store(intern(stmt.name));
        break;
      case StmtKind::With:
        for (const ExprPtr& value : stmt.values) add_expr(symbols, *value);
        break;
      case StmtKind::Generation:
      case StmtKind::Block:
      case StmtKind::Scope:
      case StmtKind::Break:
      case StmtKind::Continue:
        break;
    }
  }

  void add_if(Symbols& symbols, const Stmt& stmt) {
    add_expr(symbols, *stmt.value);
    Symbols then = symbols.branch();
    add_body(then, stmt.body);
    Symbols elifs = symbols.branch();
    add_body(elifs, stmt.elifs);
    Symbols otherwise = symbols.branch();
    add_body(otherwise, stmt.else_body);
    symbols.merge({&then, &elifs, &otherwise});
  }

  // --- From names to slots.

  static uint16_t count_slots(const FunctionScope& function) {
    return static_cast<uint16_t>(function.slots.size());
  }

  SlotRef slot_of(Ident ident, FunctionScope* function) {
    SlotRef slot;
    while (ident.level < function->base_level) {
      ++slot.hops;
      function = function->outer;
    }
    auto [found, added] = function->slots.try_emplace(ident, static_cast<uint16_t>(function->slots.size()));
    if (added && function->slots.size() > UINT16_MAX) fail(0, "too many variables");
    slot.index = found->second;
    return slot;
  }

  SlotRef slot_of(const std::string& name, uint32_t offset, const FrameScope& frame) {
    const Ident* ident = frame.symbols.find(intern(name));
    // jinja2's compiler stops at the same places with an assertion: it forgets the arguments of a set block's
    // filter.
    if (ident == nullptr) fail(offset, "the name '" + name + "' is not known here");
    return slot_of(*ident, frame.function);
  }

  ScopeInfo finish_scope(FrameScope& frame) {
    ScopeInfo info;
    for (const auto& [target, spec] : frame.symbols.loads) {
      Load load;
      load.action = spec.action;
      load.slot = slot_of(target, frame.function).index;
      load.name = target.name;
      if (spec.action == Load::Action::Alias) load.source = slot_of(spec.source, frame.function);
      info.loads.push_back(load);
    }
    return info;
  }

  FrameScope inner_frame(const FrameScope& outer, FunctionScope* function) const {
    FrameScope frame;
    frame.symbols.level = outer.symbols.level + 1;
    frame.symbols.parent = &outer.symbols;
    frame.function = function;
    return frame;
  }

  FunctionScope inner_function(const FrameScope& outer) const {
    FunctionScope function;
    function.outer = outer.function;
    function.base_level = outer.symbols.level + 1;
    return function;
  }

  void resolve_expr(Expr& expr, const FrameScope& frame) {
    if (expr.kind == ExprKind::Name || expr.kind == ExprKind::NamespaceRef) {
      expr.slot = slot_of(expr.name, expr.offset, frame);
      return;
    }
    bool is_filter = expr.kind == ExprKind::Filter;
    if ((is_filter || expr.kind == ExprKind::Test) && expr.function == nullptr && !frame.soft) {
      fail(expr.offset, std::string("No ") + (is_filter ? "filter" : "test") + " named '" + expr.name + "'.");
    }
    if (expr.kind == ExprKind::Conditional && !frame.soft) {
      FrameScope soft = soft_frame(frame);
      for_each_child(expr, [&](const Expr& child) { resolve_expr(const_cast<Expr&>(child), soft); });
      return;
    }
    for_each_child(expr, [&](const Expr& child) { resolve_expr(const_cast<Expr&>(child), frame); });
  }
  void resolve_optional(const ExprPtr& expr, const FrameScope& frame) {
    if (expr) resolve_expr(*expr, frame);
  }

  // The same names, where unknown filters are forgiven until they are reached.
  FrameScope soft_frame(const FrameScope& frame) const {
    FrameScope soft;
    soft.symbols = frame.symbols.branch();
    soft.function = frame.function;
    soft.toplevel = frame.toplevel;
    soft.in_loop = frame.in_loop;
    soft.soft = true;
    return soft;
  }

  void resolve_body(Body& body, FrameScope& frame) {
    for (StmtPtr& stmt : body) resolve_stmt(*stmt, frame);
  }

  void resolve_stmt(Stmt& stmt, FrameScope& frame) {
    switch (stmt.kind) {
      case StmtKind::Output:
        for (ExprPtr& item : stmt.items) resolve_expr(*item, frame);
        break;
      case StmtKind::Set:
        resolve_expr(*stmt.value, frame);
        resolve_target(stmt, frame);
        break;
      case StmtKind::SetBlock:
      case StmtKind::FilterBlock:
      case StmtKind::Scope:
        resolve_inner_block(stmt, frame);
        if (stmt.kind == StmtKind::SetBlock) resolve_target(stmt, frame);
        break;
      case StmtKind::For:
        resolve_for(stmt, frame);
        break;
      case StmtKind::If:
        resolve_if(stmt, frame);
        break;
      case StmtKind::Macro:
        resolve_macro(stmt, frame);
        stmt.slot = slot_of(stmt.name, stmt.offset, frame);
        if (frame.toplevel) stmt.exported.emplace_back(stmt.slot, intern(stmt.name));
        break;
      case StmtKind::CallBlock:
        resolve_macro(stmt, frame);
        resolve_expr(*stmt.value, frame);
        break;
      case StmtKind::Generation:
        resolve_macro(stmt, frame);
        break;
      case StmtKind::With:
        resolve_with(stmt, frame);
        break;
      case StmtKind::Block:
        resolve_block(stmt);
        break;
      case StmtKind::Break:
      case StmtKind::Continue:
        if (!frame.in_loop) {
          fail(stmt.offset,
               stmt.kind == StmtKind::Break ? "'break' outside loop" : "'continue' not properly in loop");
        }
        break;
    }
  }

  // A block with names of its own, and the filters that its text goes through.
  void resolve_inner_block(Stmt& stmt, FrameScope& frame) {
    FrameScope inner = inner_frame(frame, frame.function);
    inner.in_loop = frame.in_loop;
    add_body(inner.symbols, stmt.body);
    if (stmt.kind == StmtKind::FilterBlock) add_expr(inner.symbols, *stmt.value);
    stmt.scope = finish_scope(inner);
    resolve_body(stmt.body, inner);
    resolve_optional(stmt.value, inner);
  }

  void resolve_target(Stmt& stmt, FrameScope& frame) {
    resolve_expr(*stmt.target, frame);
    if (!frame.toplevel) return;
    std::function<void(const Expr&)> collect = [&](const Expr& target) {
      if (target.kind == ExprKind::Name) stmt.exported.emplace_back(target.slot, intern(target.name));
      for (const ExprPtr& item : target.items) collect(*item);
    };
    collect(*stmt.target);
  }

  void resolve_if(Stmt& stmt, FrameScope& frame) {
    FrameScope soft = soft_frame(frame);
    resolve_expr(*stmt.value, soft);
    resolve_body(stmt.body, soft);
    for (StmtPtr& elif : stmt.elifs) {
      resolve_expr(*elif->value, soft);
      resolve_body(elif->body, soft);
    }
    resolve_body(stmt.else_body, soft);
  }

  void resolve_for(Stmt& stmt, FrameScope& frame) {
    stmt.uses_loop = stmt.recursive || uses_undeclared(stmt.body, {"loop"}).count("loop") != 0;
    if (stores_loop(stmt)) fail(stmt.offset, "Can't assign to special loop variable in for-loop target");
    if (stmt.test) resolve_loop_test(stmt, frame);

    FunctionScope own_function = inner_function(frame);
    FunctionScope* function = stmt.recursive ? &own_function : frame.function;
    FrameScope loop = inner_frame(frame, function);
    loop.in_loop = true;
    if (stmt.uses_loop) loop.symbols.declare_parameter(intern("loop"));
    add_expr(loop.symbols, *stmt.target, Role::Parameter);
    add_body(loop.symbols, stmt.body);
    FrameScope otherwise = inner_frame(frame, function);
    otherwise.in_loop = stmt.recursive ? false : frame.in_loop;
    add_body(otherwise.symbols, stmt.else_body);

    resolve_expr(*stmt.value, frame);
    resolve_expr(*stmt.target, loop);
    if (stmt.uses_loop) stmt.slot = slot_of("loop", stmt.offset, loop);
    stmt.scope = finish_scope(loop);
    resolve_body(stmt.body, loop);
    stmt.else_scope = finish_scope(otherwise);
    resolve_body(stmt.else_body, otherwise);
    if (stmt.recursive) stmt.function.n_slots = count_slots(own_function);
  }

  void resolve_loop_test(Stmt& stmt, FrameScope& frame) {
    FunctionScope function = inner_function(frame);
    FrameScope test = inner_frame(frame, &function);
    add_expr(test.symbols, *stmt.test_target, Role::Parameter);
    add_expr(test.symbols, *stmt.test);
    stmt.test_function.scope = finish_scope(test);
    resolve_expr(*stmt.test_target, test);
    resolve_expr(*stmt.test, test);
    stmt.test_function.n_slots = count_slots(function);
  }

  void resolve_macro(Stmt& stmt, FrameScope& frame) {
    FunctionScope function = inner_function(frame);
    FrameScope macro = inner_frame(frame, &function);
    for (const ExprPtr& parameter : stmt.items) add_expr(macro.symbols, *parameter, Role::Parameter);
    for (const ExprPtr& value : stmt.values) add_expr(macro.symbols, *value);
    add_body(macro.symbols, stmt.body);
    declare_specials(stmt, macro);
    stmt.function.scope = finish_scope(macro);
    for (ExprPtr& parameter : stmt.items) resolve_expr(*parameter, macro);
    for (ExprPtr& value : stmt.values) resolve_expr(*value, macro);
    resolve_body(stmt.body, macro);
    stmt.function.n_slots = count_slots(function);
  }

  void declare_specials(Stmt& stmt, FrameScope& macro) {
    std::set<std::string> used = uses_undeclared(stmt.body, {"caller", "kwargs", "varargs"});
    auto is_parameter = [&](std::string_view name) {
      return std::find_if(stmt.items.begin(), stmt.items.end(), [&](const ExprPtr& p) { return p->name == name; });
    };
    auto declare = [&](const char* name) {
      return slot_of(macro.symbols.declare_parameter(intern(name)), macro.function);
    };
    stmt.names_caller = used.count("caller") != 0;
    if (stmt.names_caller) {
      auto parameter = is_parameter("caller");
      if (parameter == stmt.items.end()) {
        stmt.uses_caller = true;
        stmt.caller = declare("caller");
      } else if (static_cast<size_t>(stmt.items.end() - parameter) > stmt.values.size()) {
        fail(stmt.offset,
             "When defining macros or call blocks the special \"caller\" argument must be omitted or be "
             "given a default.");
      }
    }
    if (used.count("kwargs") != 0 && is_parameter("kwargs") == stmt.items.end()) {
      stmt.uses_kwargs = true;
      stmt.kwargs = declare("kwargs");
    }
    if (used.count("varargs") != 0 && is_parameter("varargs") == stmt.items.end()) {
      stmt.uses_varargs = true;
      stmt.varargs = declare("varargs");
    }
  }

  void resolve_with(Stmt& stmt, FrameScope& frame) {
    FrameScope inner = inner_frame(frame, frame.function);
    inner.in_loop = frame.in_loop;
    for (const ExprPtr& target : stmt.items) add_expr(inner.symbols, *target, Role::Parameter);
    add_body(inner.symbols, stmt.body);
    stmt.scope = finish_scope(inner);
    for (ExprPtr& value : stmt.values) resolve_expr(*value, frame);
    for (ExprPtr& target : stmt.items) resolve_expr(*target, inner);
    resolve_body(stmt.body, inner);
  }

  void resolve_block(Stmt& stmt) {
    if (!blocks_.insert(stmt.name).second) fail(stmt.offset, "block '" + stmt.name + "' defined twice");
    FunctionScope function;
    FrameScope frame;
    frame.function = &function;
    add_body(frame.symbols, stmt.body);
    stmt.function.scope = finish_scope(frame);
    resolve_body(stmt.body, frame);
    stmt.function.n_slots = count_slots(function);
  }

  // --- jinja2's find_undeclared: names read anywhere below before anything there stores them.

  std::set<std::string> uses_undeclared(const Body& body, std::set<std::string> names) {
    std::set<std::string> used;
    visit_names(body, [&](const Expr& name, Role role) {
      if (names.count(name.name) == 0) return;
      if (role == Role::Load) {
        used.insert(name.name);
      } else {
        names.erase(name.name);
      }
    });
    return used;
  }

  bool stores_loop(const Stmt& stmt) {
    bool found = false;
    auto look = [&](const Expr& name, Role role) { found = found || (role == Role::Store && name.name == "loop"); };
    visit_target(*stmt.target, look, Role::Store);
    visit_names(stmt.body, look);
    visit_names(stmt.else_body, look);
    return found;
  }

  using NameVisitor = std::function<void(const Expr&, Role)>;

  void visit_target(const Expr& target, const NameVisitor& visit, Role role) {
    if (target.kind == ExprKind::Name) visit(target, role);
    for (const ExprPtr& item : target.items) visit_target(*item, visit, role);
  }
  void visit_expr(const Expr& expr, const NameVisitor& visit) {
    if (expr.kind == ExprKind::Name) visit(expr, Role::Load);
    for_each_child(expr, [&](const Expr& child) { visit_expr(child, visit); });
  }
  void visit_optional(const ExprPtr& expr, const NameVisitor& visit) {
    if (expr) visit_expr(*expr, visit);
  }
  void visit_names(const Body& body, const NameVisitor& visit) {
    for (const StmtPtr& stmt : body) visit_stmt(*stmt, visit);
  }
  void visit_stmt(const Stmt& stmt, const NameVisitor& visit) {
    if (stmt.kind == StmtKind::Block) return;
    if (stmt.kind == StmtKind::FilterBlock) {
      visit_names(stmt.body, visit);
      visit_optional(stmt.value, visit);
      return;
    }
    if (stmt.kind == StmtKind::CallBlock) visit_optional(stmt.value, visit);
    bool has_parameters =
        stmt.kind == StmtKind::Macro || stmt.kind == StmtKind::CallBlock || stmt.kind == StmtKind::With;
    for (const ExprPtr& item : stmt.items) {
      if (has_parameters) {
        visit_target(*item, visit, Role::Parameter);
      } else {
        visit_expr(*item, visit);
      }
    }
    for (const ExprPtr& value : stmt.values) visit_expr(*value, visit);
    if (stmt.target) visit_target(*stmt.target, visit, Role::Store);
    if (stmt.kind != StmtKind::CallBlock) visit_optional(stmt.value, visit);
    bool is_for = stmt.kind == StmtKind::For;
    visit_names(stmt.body, visit);
    visit_names(stmt.elifs, visit);
    visit_names(stmt.else_body, visit);
    if (is_for) visit_optional(stmt.test, visit);
  }

  std::string_view source_;
  std::string_view subject_;
  Scopes scopes_;
  std::unordered_map<std::string, NameId> name_ids_;
  std::set<std::string> blocks_;
};

}  // namespace

Scopes analyze_scopes(Body& body, std::string_view source, std::string_view subject) {
  return Analyzer(source, subject).run(body);
}

}  // namespace kvfork::jinja
