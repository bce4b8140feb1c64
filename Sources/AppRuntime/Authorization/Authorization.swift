/// Whether an app may be used, why not, and what a person is asked for (Documentation/RUNTIME.md, "The state of an app").
///
/// A value without a clock and without I/O. Whoever holds it compares it before and after an input: keys that were open
/// and are closed now have to leave memory before anything else happens.
public struct Authorization: Sendable, Hashable {
  /// How far an app is set up for its user.
  public enum Activation: Int, Sendable, Hashable, CaseIterable {
    case notActivated = 0
    case inProgress, activated
  }

  /// Whether the container is open, and whose password or key opened it.
  public enum Keys: Sendable, Hashable, CaseIterable {
    case closed
    case openedByPerson
    /// A raw key that the program was given. Coming to the front requires the password.
    case openedWithoutPerson
  }

  /// What a person is asked for next.
  public enum Question: Sendable, Hashable, CaseIterable {
    case nothing, unlockCode, password, newPassword
  }

  /// What belongs on the screen.
  public enum Presentation: Sendable, Hashable {
    case nothing, app
    case asking(Question)
  }

  /// What the owner's management file says about the entitlement.
  public enum Entitlement: Sendable, Hashable, CaseIterable {
    case entitled, versionNotEntitled, notEntitled
  }

  /// How far the app is set up.
  public private(set) var activation: Activation
  /// Whether the container is open.
  public private(set) var keys = Keys.closed
  /// Whether the app was authorized in this process at any time.
  public private(set) var wasAuthorized = false
  /// The blocks that the app itself decided, the newest first.
  public private(set) var localBlocks: [LocalBlock]
  /// Whether the unlock code is required.
  public private(set) var isRemotelyLocked: Bool
  private var managementBlock: Notice?
  private var entitlement: Entitlement
  private var isIdle = false
  private var requiresNewPassword = false
  private var isWiped = false

  /// The state of a process that begins.
  public init(
    activation: Activation = .notActivated, localBlocks: [LocalBlock] = [], isRemotelyLocked: Bool = false,
    managementBlock: Notice? = nil, entitlement: Entitlement = .entitled
  ) {
    self.activation = activation
    self.localBlocks = localBlocks
    self.isRemotelyLocked = isRemotelyLocked
    self.managementBlock = managementBlock
    self.entitlement = entitlement
  }

  // MARK: Derived

  /// All withdrawals, the strongest first: those that a person cannot end by any answer, then those that are asked about.
  public var withdrawals: [Withdrawal] {
    var all: [Withdrawal] = []
    if isWiped { all.append(.wiped) }
    if entitlement == .notEntitled { all.append(.notEntitled) }
    if let managementBlock { all.append(.managementBlock(managementBlock)) }
    if entitlement == .versionNotEntitled { all.append(.versionNotEntitled) }
    if isRemotelyLocked { all.append(.remoteLock) }
    if requiresNewPassword { all.append(.passwordChange) }
    all += localBlocks.map { .localBlock($0) }
    if isIdle { all.append(.idle) }
    return all
  }

  /// The strongest withdrawal that takes the keys; nil while nothing does.
  var keysTakenBy: Withdrawal? { withdrawals.first(where: \.takesKeys) }

  /// Whether a withdrawal takes the keys.
  package var takesKeys: Bool { keysTakenBy != nil }

  /// The withdrawal that a person is told about.
  public var shown: Withdrawal? { withdrawals.first }

  /// Whether files and services work.
  public var isAuthorized: Bool { keys != .closed }

  /// What a person is asked for next.
  public var asks: Question {
    if isWiped || managementBlock != nil || entitlement != .entitled { return .nothing }
    if isRemotelyLocked { return .unlockCode }
    if keys == .closed || isIdle { return .password }
    return requiresNewPassword ? .newPassword : .nothing
  }

  /// What belongs on the screen: the app only after a person has typed the password.
  public var presentation: Presentation {
    if keys == .openedByPerson, withdrawals.isEmpty { return .app }
    return activation == .activated || takesKeys ? .asking(asks) : .nothing
  }

  /// A sentence for a person about what is shown; empty when nothing is withdrawn.
  public var message: String { shown?.message ?? "" }

  // MARK: Inputs

  /// What happens to an app.
  public enum Input: Sendable, Hashable {
    case activationBegan
    case activationEnded(isComplete: Bool)
    /// The container was opened.
    case opened(byPerson: Bool, requiresNewPassword: Bool)
    /// The program let the container go.
    case closed
    /// A person typed the password while the keys were open.
    case authenticated(requiresNewPassword: Bool)
    /// A new password was accepted while the keys were open.
    case passwordChanged
    /// An attempt to activate or to open has failed.
    case failed(AuthorizationCode, inBackground: Bool)
    case idleTimePassed
    case passwordChangeRequired
    case broughtToFront
    case blocked(LocalBlock)
    case unblocked(id: String)
    /// The owner's decisions, all of them.
    case managed(block: Notice?, entitlement: Entitlement)
    case remotelyLocked
    case unlockCodeAccepted
    case wiped
  }

  /// Whether an input has a meaning in this state. One without changes nothing: its cause was overtaken.
  public func allows(_ input: Input) -> Bool {
    if isWiped { return false }
    return switch input {
    case .activationBegan: activation == .notActivated
    case .activationEnded: activation == .inProgress
    case .opened: activation == .activated && keys == .closed && !takesKeys
    case .closed, .authenticated, .passwordChanged, .passwordChangeRequired: keys != .closed
    case .idleTimePassed: keys == .openedByPerson && !isIdle
    case .broughtToFront: keys == .openedWithoutPerson && !isIdle
    case .unblocked(let id): localBlocks.contains { $0.id == id }
    case .unlockCodeAccepted: isRemotelyLocked
    case .failed, .blocked, .managed, .remotelyLocked, .wiped: true
    }
  }

  /// Changes the state, and returns the event of the change, if it has one. An input that the state does not allow
  /// changes nothing.
  public mutating func apply(_ input: Input) -> AuthorizationEvent? {
    guard allows(input) else { return nil }
    let before = self
    switch input {
    case .activationBegan: activation = .inProgress
    case .activationEnded(let isComplete): activation = isComplete ? .activated : .notActivated
    case .opened(let byPerson, let requiresNewPassword):
      keys = byPerson ? .openedByPerson : .openedWithoutPerson
      wasAuthorized = true
      self.requiresNewPassword = requiresNewPassword
    case .closed: (keys, isIdle, requiresNewPassword) = (.closed, false, false)
    case .authenticated(let requiresNewPassword):
      (keys, isIdle) = (.openedByPerson, false)
      self.requiresNewPassword = self.requiresNewPassword || requiresNewPassword
    case .passwordChanged: (keys, isIdle, requiresNewPassword) = (.openedByPerson, false, false)
    case .failed(let code, let inBackground):
      return AuthorizationEvent(
        inBackground ? .backgroundNotAuthorized : .notAuthorized, code: code,
        withdrawal: shown?.code == code ? shown : nil)
    case .idleTimePassed, .broughtToFront: isIdle = true
    case .passwordChangeRequired: requiresNewPassword = true
    case .blocked(let block):
      localBlocks.removeAll { $0.id == block.id }
      localBlocks.insert(block, at: 0)
      if localBlocks.count > LocalBlock.countMax { localBlocks.removeLast() }
    case .unblocked(let id): localBlocks.removeAll { $0.id == id }
    case .managed(let block, let entitlement): (managementBlock, self.entitlement) = (block, entitlement)
    case .remotelyLocked: isRemotelyLocked = true
    case .unlockCodeAccepted: isRemotelyLocked = false
    case .wiped: isWiped = true
    }
    // What the person has typed before counts for nothing once the keys are gone.
    if takesKeys {
      (keys, isIdle, requiresNewPassword) = (.closed, false, false)
    }
    return event(since: before, input)
  }

  /// No person has used the keys that a program opened.
  private var isBackgroundOnly: Bool { keys == .openedWithoutPerson && !isIdle }

  private func event(since before: Authorization, _ input: Input) -> AuthorizationEvent? {
    let isNew = !Set(withdrawals).isSubset(of: before.withdrawals)
    let hasOpened = keys != before.keys && keys != .closed
    guard isNew || hasOpened || shown != before.shown, input != .closed else { return nil }
    if let shown {
      let isBackground = isBackgroundOnly || (before.isBackgroundOnly && input != .broughtToFront)
      return AuthorizationEvent(
        isBackground ? .backgroundNotAuthorized : .notAuthorized, code: shown.code, withdrawal: shown)
    }
    return switch keys {
    case .closed: nil
    case .openedByPerson: AuthorizationEvent(.authorized)
    case .openedWithoutPerson: AuthorizationEvent(.backgroundAuthorized)
    }
  }
}
