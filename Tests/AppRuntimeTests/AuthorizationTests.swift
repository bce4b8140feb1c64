import AppRuntime
import TestSupport
import Testing

/// The value against the table of Documentation/RUNTIME.md, in every state with every input.
struct AuthorizationTests {
  private static let notice = Notice(title: "Blocked", text: "Call the help desk.")
  private static let blocks = ["a", "b"].map { LocalBlock(id: $0, notice: Notice(title: $0, text: $0)) }

  /// The state as the page describes it, derived in another way than the value does: a set of rows, and the keys.
  private struct Model: Hashable {
    enum Row: Int, CaseIterable, Hashable {
      case idle, localBlockA, localBlockB, passwordChange, remoteLock, versionNotEntitled, managementBlock,
        notEntitled, wiped
      var takesKeys: Bool { rawValue >= Row.remoteLock.rawValue }
    }
    var activation = Authorization.Activation.notActivated
    var keys = Authorization.Keys.closed
    var wasAuthorized = false
    var rows: Set<Row> = []
    /// Which local block is newer; meaningful when both are there.
    var newest = Row.localBlockA

    var shown: Row? {
      let strongest = rows.max { $0.rawValue < $1.rawValue }
      guard let strongest, [.localBlockA, .localBlockB].contains(strongest) else { return strongest }
      return rows.contains(newest) ? newest : strongest
    }

    var asks: Authorization.Question {
      if !rows.isDisjoint(with: [.wiped, .managementBlock, .versionNotEntitled, .notEntitled]) {
        return .nothing
      }
      if rows.contains(.remoteLock) { return .unlockCode }
      if keys == .closed || rows.contains(.idle) { return .password }
      return rows.contains(.passwordChange) ? .newPassword : .nothing
    }

    func withdrawal(_ row: Row) -> Withdrawal {
      switch row {
      case .idle: .idle
      case .passwordChange: .passwordChange
      case .localBlockA: .localBlock(blocks[0])
      case .localBlockB: .localBlock(blocks[1])
      case .managementBlock: .managementBlock(notice)
      case .versionNotEntitled: .versionNotEntitled
      case .notEntitled: .notEntitled
      case .remoteLock: .remoteLock
      case .wiped: .wiped
      }
    }

    /// The next state and its event.
    mutating func apply(_ input: Authorization.Input) -> AuthorizationEvent? {
      guard !rows.contains(.wiped) else { return nil }
      let before = self
      switch input {
      case .activationBegan:
        if activation == .notActivated { activation = .inProgress }
        return nil
      case .activationEnded(let isComplete):
        if activation == .inProgress { activation = isComplete ? .activated : .notActivated }
        return nil
      case .failed(let code, let inBackground):
        return AuthorizationEvent(inBackground ? .backgroundNotAuthorized : .notAuthorized, code: code)
      case .closed:
        keys = .closed
        rows.subtract([.idle, .passwordChange])
        return nil
      case .opened(let byPerson, let requiresNewPassword):
        guard activation == .activated, keys == .closed, !rows.contains(where: \.takesKeys) else {
          return nil
        }
        keys = byPerson ? .openedByPerson : .openedWithoutPerson
        wasAuthorized = true
        if requiresNewPassword { rows.insert(.passwordChange) }
      case .authenticated(let requiresNewPassword):
        guard keys != .closed else { return nil }
        keys = .openedByPerson
        rows.remove(.idle)
        if requiresNewPassword { rows.insert(.passwordChange) }
      case .passwordChanged:
        guard keys != .closed else { return nil }
        keys = .openedByPerson
        rows.subtract([.idle, .passwordChange])
      case .idleTimePassed: if keys == .openedByPerson { rows.insert(.idle) }
      case .broughtToFront: if keys == .openedWithoutPerson { rows.insert(.idle) }
      case .passwordChangeRequired: if keys != .closed { rows.insert(.passwordChange) }
      case .blocked(let block):
        newest = block.id == "a" ? .localBlockA : .localBlockB
        rows.insert(newest)
      case .unblocked(let id): rows.remove(id == "a" ? .localBlockA : .localBlockB)
      case .managed(let block, let entitlement):
        rows.subtract([.managementBlock, .versionNotEntitled, .notEntitled])
        if block != nil { rows.insert(.managementBlock) }
        if entitlement == .versionNotEntitled { rows.insert(.versionNotEntitled) }
        if entitlement == .notEntitled { rows.insert(.notEntitled) }
      case .remotelyLocked: rows.insert(.remoteLock)
      case .unlockCodeAccepted: rows.remove(.remoteLock)
      case .wiped: rows.insert(.wiped)
      }
      if rows.contains(where: \.takesKeys) {
        keys = .closed
        rows.subtract([.idle, .passwordChange])
      }
      return event(since: before, input)
    }

    private func event(since before: Model, _ input: Authorization.Input) -> AuthorizationEvent? {
      let hasOpened = keys != .closed && keys != before.keys
      if rows.isEmpty {
        guard keys != .closed, hasOpened || !before.rows.isEmpty else { return nil }
        return AuthorizationEvent(keys == .openedByPerson ? .authorized : .backgroundAuthorized)
      }
      let hasNew = !rows.subtracting(before.rows).isEmpty
      guard hasNew || hasOpened || shown != before.shown else { return nil }
      let withdrawal = withdrawal(shown!)
      let wasAlone =
        before.keys == .openedWithoutPerson && !before.rows.contains(.idle) && input != .broughtToFront
      let isAlone = keys == .openedWithoutPerson && !rows.contains(.idle)
      return AuthorizationEvent(
        wasAlone || isAlone ? .backgroundNotAuthorized : .notAuthorized, code: withdrawal.code,
        withdrawal: withdrawal)
    }
  }

  private static let inputs: [Authorization.Input] =
    [
      .activationBegan, .activationEnded(isComplete: true), .activationEnded(isComplete: false),
      .opened(byPerson: true, requiresNewPassword: false), .opened(byPerson: true, requiresNewPassword: true),
      .opened(byPerson: false, requiresNewPassword: false), .closed,
      .authenticated(requiresNewPassword: false),
      .authenticated(requiresNewPassword: true), .passwordChanged,
      .failed(.noNetwork, inBackground: false), .failed(.securityError, inBackground: true), .idleTimePassed,
      .passwordChangeRequired, .broughtToFront, .remotelyLocked, .unlockCodeAccepted, .wiped,
    ] + blocks.map { .blocked($0) } + blocks.map { .unblocked(id: $0.id) }
    + [nil, notice].flatMap { block in
      Authorization.Entitlement.allCases.map { .managed(block: block, entitlement: $0) }
    }

  private func expectEqual(_ value: Authorization, _ model: Model) -> Bool {
    value.activation == model.activation && value.keys == model.keys
      && value.wasAuthorized == model.wasAuthorized
      && value.shown == model.shown.map(model.withdrawal)
      && Set(value.withdrawals) == Set(model.rows.map(model.withdrawal)) && value.asks == model.asks
      && value.isAuthorized == (model.keys != .closed)
  }

  private static let openingInputs: [Authorization.Input] = [
    .activationBegan, .activationEnded(isComplete: true), .opened(byPerson: true, requiresNewPassword: false),
    .opened(byPerson: false, requiresNewPassword: false),
    .managed(block: nil, entitlement: .entitled), .unlockCodeAccepted,
  ]

  /// From the first state on, every state that inputs lead to, each with every input.
  @Test func everyInputInEveryStateDoesWhatTheTableSays() {
    var seen: Set<Authorization> = [Authorization()]
    var toVisit = [(Authorization(), Model())]
    var edgeCount = 0
    while let (value, model) = toVisit.popLast() {
      for input in Self.inputs {
        var (next, nextModel) = (value, model)
        let event = next.apply(input)
        let expected = nextModel.apply(input)
        edgeCount += 1
        guard event == expected, expectEqual(next, nextModel), value.allows(input) || next == value else {
          Issue.record(
            "\(input) in \(value) gave \(next) with \(String(describing: event)), not \(String(describing: expected))"
          )
          return
        }
        if seen.insert(next).inserted { toVisit.append((next, nextModel)) }
      }
    }
    // 3 activations, withdrawals and keys: fewer would mean that inputs were lost.
    #expect(seen.count > 500, "\(seen.count) states")
    #expect(edgeCount == seen.count * Self.inputs.count)
  }

  /// What is in the state, and not in the order of the inputs.
  @Test func keysAreNeverOpenUnderAWithdrawalThatTakesThem() {
    var random = SplitMix64(seed: 4)
    var value = Authorization()
    var openCount = 0
    for _ in 0..<20_000 {
      // What opens is a small part of all inputs.
      let inputs = random.oneIn(2) ? Self.openingInputs : Self.inputs
      let input = inputs[random.below(inputs.count)]
      // One wipe would end the walk.
      if input == .wiped { continue }
      let event = value.apply(input)
      if value.isAuthorized { openCount += 1 }
      #expect(!(value.isAuthorized && value.withdrawals.contains(where: \.takesKeys)))
      #expect(event?.kind != .authorized || (value.withdrawals.isEmpty && value.keys == .openedByPerson))
      #expect(
        (value.presentation == .app) == (value.keys == .openedByPerson && value.withdrawals.isEmpty))
      // What a person is asked for is on the screen.
      #expect(value.asks == .nothing || value.presentation != .asking(.nothing))
      #expect(
        !value.withdrawals.contains(where: \.takesKeys) || value.presentation == .asking(value.asks))
      if let withdrawal = event?.withdrawal {
        #expect(withdrawal == value.shown && event?.code == withdrawal.code)
      }
    }
    #expect(openCount > 1_000)
  }

  @Test func aBlockWithAKnownIDReplacesItAndComesFirst() {
    var value = Authorization(activation: .activated)
    _ = value.apply(.opened(byPerson: true, requiresNewPassword: false))
    #expect(value.apply(.blocked(Self.blocks[0]))?.withdrawal == .localBlock(Self.blocks[0]))
    #expect(value.apply(.blocked(Self.blocks[1]))?.withdrawal == .localBlock(Self.blocks[1]))
    let changed = LocalBlock(id: "a", notice: Notice(title: "a", text: "changed"))
    #expect(value.apply(.blocked(changed))?.withdrawal == .localBlock(changed))
    #expect(value.localBlocks == [changed, Self.blocks[1]])
    #expect(value.isAuthorized && value.asks == .nothing && value.presentation == .asking(.nothing))
    #expect(value.apply(.unblocked(id: "a"))?.withdrawal == .localBlock(Self.blocks[1]))
    #expect(value.apply(.unblocked(id: "b"))?.kind == .authorized)
  }

  @Test func keeps64BlocksOf1KiB() {
    var value = Authorization(activation: .activated)
    for i in 0..<100 { _ = value.apply(.blocked(LocalBlock(id: "\(i)", notice: Self.notice))) }
    #expect(value.localBlocks.count == LocalBlock.countMax)
    #expect(value.localBlocks.first?.id == "99" && value.localBlocks.last?.id == "36")
    let long = Notice(
      title: String(repeating: "e\u{301}", count: 5_000), text: String(repeating: "😀", count: 300))
    #expect(long.title.utf8.count == 1024 && long.text == String(repeating: "😀", count: 256))
  }

  /// Raw values of the documents that this project implements.
  @Test func theNumbersAreTheDocumentedOnes() {
    #expect(AuthorizationEvent.Kind.allCases.map(\.rawValue) == [0, 1, 2, 3, 4, 6, 7, 8])
    #expect(
      AuthorizationCode.allCases.map(\.rawValue) == [
        0, -100, -101, -102, -103, -104, -105, -300, -301, -302, -303, -304, -600, -601, -602, -603, -606,
      ])
    #expect(Set(AuthorizationCode.allCases.map(\.message)).count >= 14)
  }
}
