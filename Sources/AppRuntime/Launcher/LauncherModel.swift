public import AppKinetics
public import Foundation

/// What a launcher shows, and what a person or the app may do with it (Documentation/LAUNCHER.md).
///
/// A value without a clock, without I/O and without a view: an input changes it, and says what has to be done.
public struct LauncherModel: Sendable, Hashable {
  /// Whether the panel is open, and whether the button is there. An open panel without a button cannot be said.
  public enum View: Sendable, Hashable, CaseIterable {
    case closed, open, closedWithoutButton
  }

  /// Which way a screen is held; the button has a place in each.
  public enum Orientation: String, Sendable, Hashable, Codable, CaseIterable {
    case portrait, landscape
  }

  /// A place as fractions of the width and of the height, from the top left corner: 0 to 1.
  public struct Place: Sendable, Hashable, Codable {
    public var x: Double
    public var y: Double

    /// Makes a place; ``isValid`` says whether it is one.
    public init(x: Double, y: Double) { (self.x, self.y) = (x, y) }

    /// Whether it is on the screen.
    public var isValid: Bool { (0...1).contains(x) && (0...1).contains(y) }
    /// Where the button is before it was placed, and while the panel is open.
    public static let bottomRight = Place(x: 1, y: 1)
  }

  /// What lies over the panel or over the app.
  public enum Presented: Sendable, Hashable, CaseIterable {
    case nothing, settings, certificates, coachMark
  }

  /// A part of the panel that the app fills.
  public struct Section: Sendable, Hashable {
    /// The app's name for it.
    public var id: String
    /// For people.
    public var title: String
    /// What the app is told when a person selects it.
    public var location: String
    /// One that is not is hidden.
    public var isEnabled: Bool

    /// Makes a section.
    public init(id: String, title: String, location: String, isEnabled: Bool = true) {
      (self.id, self.title, self.location, self.isEnabled) = (id, title, location, isEnabled)
    }
  }

  /// Something that the app itself does, such as to compose a message.
  public struct LocalAction: Sendable, Hashable {
    /// What the app is told when a person selects it, and its name.
    public var location: String
    /// For people.
    public var title: String

    /// Makes an action.
    public init(location: String, title: String) { (self.location, self.title) = (location, title) }
  }

  /// Something that another app does: a service that somebody has to provide.
  public struct QuickAction: Sendable, Hashable {
    /// Whether a person may select it, and why not.
    public enum State: Sendable, Hashable {
      /// These apps provide it, in the order of the list.
      case enabled([ApplicationID])
      /// Nobody provides the service.
      case notProvided
    }

    /// The service that is needed.
    public var service: ServiceIdentifier
    /// For people.
    public var title: String

    /// Makes an action.
    public init(service: ServiceIdentifier, title: String) { (self.service, self.title) = (service, title) }
  }

  /// An app of the user.
  public struct App: Sendable, Hashable {
    /// Its address.
    public var application: ApplicationID
    /// For people; its own word.
    public var name: String
    /// PNG; nil when it has none.
    public var icon: Data?
    /// Whether it runs.
    public var state: Provider.State
    /// Whether the broker can start it.
    public var isInstalled: Bool
    /// Whether it is in front.
    public var isInFront: Bool
    /// Whether it is the app whose launcher this is.
    public var isOwn: Bool
    /// What it provides.
    public var services: Set<ServiceIdentifier>

    /// Makes an app.
    public init(
      application: ApplicationID, name: String, icon: Data? = nil, state: Provider.State = .running,
      isInstalled: Bool = false, isInFront: Bool = false, isOwn: Bool = false,
      services: Set<ServiceIdentifier> = []
    ) {
      (self.application, self.name, self.icon, self.state) = (application, name, icon, state)
      (self.isInstalled, self.isInFront, self.isOwn, self.services) = (
        isInstalled, isInFront, isOwn, services
      )
    }

    /// Whether it runs, or can be started.
    public var canBeLaunched: Bool { isInstalled || state != .notRunning }
  }

  /// A launch that failed.
  public struct FailedLaunch: Sendable, Hashable {
    /// The app that did not come to front.
    public let application: ApplicationID
    /// Why not.
    public let code: ServicesError.Code
  }

  /// A line of the settings.
  public struct Setting: Sendable, Hashable {
    /// What a line is for.
    public enum Kind: Sendable, Hashable {
      case changePassword, launcher, uploadLogs
      /// The app's own, by its name for it.
      case own(String)
    }

    /// What it is for.
    public var kind: Kind
    /// For people.
    public var text: String
    /// PNG.
    public var icon: Data?
    /// A colour of CSS, for the icon.
    public var tint: String?

    /// Makes a line.
    public init(_ kind: Kind, text: String, icon: Data? = nil, tint: String? = nil) {
      (self.kind, self.text, self.icon, self.tint) = (kind, text, icon, tint)
    }
  }

  /// How long a list of apps counts while the broker does not answer.
  public enum CacheExpiry: Sendable, Hashable {
    case forever, never
    case seconds(Double)

    /// From the documented number: negative for ever, 0 never, else seconds.
    public init(_ seconds: Double) {
      self = seconds < 0 ? .forever : seconds > 0 ? .seconds(seconds) : .never
    }
  }

  /// What is kept from one process to the next.
  public struct Memory: Sendable, Hashable, Codable {
    /// Where the button was put last.
    public var places: [Orientation: Place] = [:]
    /// Whether a person has seen the coach mark.
    public var hasSeenCoachMark = false

    /// Nothing is remembered.
    public init() {}
  }

  /// Why an input changes nothing.
  public enum Ignored: Error, Sendable, Hashable {
    /// The app is not authorized.
    case notAuthorized
    case buttonHidden
    case panelOpen
    case panelClosed
    /// It is so already.
    case unchanged
    case unknown
    case disabled
    /// The place is outside of the screen.
    case invalidPlace
    /// The button was placed before, and stays there.
    case placed
    /// The app does not run, and cannot be started.
    case notLaunchable
    /// A launch of the app is under way.
    case launching
  }

  /// What happens to a launcher.
  public enum Input: Sendable, Hashable {
    /// The app may be shown to its person, or not any more.
    case authorized(Bool)
    case setOpen(Bool, animated: Bool)
    case buttonTapped
    case setButtonHidden(Bool)
    /// By a person.
    case buttonMoved(to: Place, Orientation)
    /// By the app.
    case placeButton(at: Place, Orientation)
    case setBase(String?)
    case register(Section)
    case setSectionEnabled(id: String, Bool)
    case selectSection(id: String)
    case registerAction(LocalAction)
    case selectAction(location: String)
    case setQuickActions([QuickAction])
    case selectQuickAction(service: ServiceIdentifier)
    case setSettings([Setting]?)
    case presentSettings, dismissSettings
    case selectSetting(Setting.Kind)
    case openCertificates
    /// Closes whatever lies over the panel.
    case dismiss
    /// Overrides that the coach mark is shown once.
    case setShowsCoachMark(Bool)
    case setCacheExpiry(CacheExpiry)
    /// Whether the panel is open whenever the app is shown, for a view that is nothing but a launcher.
    case setStaysOpen(Bool)
    /// The user's apps; the time is of a clock that nobody sets.
    case appsFound([App], at: Duration)
    /// What apps have on their way; of those that are not there, nothing.
    case trafficFound([ApplicationID: Provider.Traffic])
    /// The broker does not answer.
    case appsNotFound(at: Duration)
    /// Whether there is a connection to the broker: without one the list is as it was.
    case connected(Bool)
    case selectApp(ApplicationID)
    /// The app lets another one come to front.
    case launchBegan(ApplicationID)
    /// A launch has ended; nil: it succeeded.
    case launchEnded(ApplicationID, ServicesError.Code?)
  }

  /// What has to be done, in this order. What is told comes before the state is shown that follows.
  public enum Effect: Sendable, Hashable {
    case willOpen, willClose
    case selectSection(location: String)
    case perform(location: String)
    case quickAction(ServiceIdentifier, [ApplicationID])
    case launch(ApplicationID)
    case changePassword, uploadLogs
    case setting(String)
    /// Ask who is there.
    case findApps
    case remember(Memory)
  }

  /// What an input has come to.
  public struct Outcome: Sendable, Hashable {
    /// What has to be done.
    public var effects: [Effect] = []
    /// Why nothing has changed; nil when something has.
    public var ignored: Ignored?
  }

  /// The panel and the button.
  public private(set) var view = View.closed
  /// Whether the panel moves to where it is, or is there at once.
  public private(set) var isAnimated = true
  /// What lies over them.
  public private(set) var presented = Presented.nothing
  /// The app's name for what is shown beneath; nil: nothing.
  public private(set) var base: String?
  /// All sections in the order in which they were registered.
  public private(set) var sections: [Section] = []
  /// The app's own actions.
  public private(set) var actions: [LocalAction] = []
  /// Actions of other apps.
  public private(set) var quickActions: [QuickAction] = []
  /// The user's apps, in the order of their names.
  public private(set) var apps: [App] = []
  /// The traffic of each app. Only the launcher of all apps (`opendynamics.launcher`) knows it; elsewhere it is empty.
  public private(set) var traffic: [ApplicationID: Provider.Traffic] = [:]
  /// Whether the panel is open whenever the app is shown.
  public private(set) var staysOpen = false
  /// Whether there is a connection to the broker, and with it news of the apps.
  public private(set) var isConnected = true
  /// Launches that are under way.
  public private(set) var launching: Set<ApplicationID> = []
  /// The last launch that failed, until the next one or the panel closes.
  public private(set) var failedLaunch: FailedLaunch?
  /// Whether the app may be shown.
  public private(set) var isAuthorized = false
  /// How long a list counts.
  public private(set) var cacheExpiry = CacheExpiry.forever
  /// What is kept.
  public private(set) var memory: Memory
  private let uploadsLogs: Bool
  private var ownSettings: [Setting]?
  private var showsCoachMark: Bool?
  private var appsTime: Duration?
  /// Sections that were disabled before they were registered.
  private var disabled: Set<String> = []

  /// The state of a process that begins. Logs can be uploaded, or the settings that every app has say nothing of them.
  public init(_ memory: Memory = Memory(), uploadsLogs: Bool = true) {
    (self.memory, self.uploadsLogs) = (memory, uploadsLogs)
  }

  // MARK: Derived

  /// Whether the panel is open.
  public var isOpen: Bool { view == .open }
  /// Whether the button is hidden.
  public var isButtonHidden: Bool { view == .closedWithoutButton }
  /// Sections that are shown.
  public var shownSections: [Section] { sections.filter(\.isEnabled) }

  /// The app's settings, or those that every app has.
  public var settings: [Setting] {
    ownSettings ?? [
      Setting(.changePassword, text: "Change password"), Setting(.launcher, text: "Launcher"),
    ] + (uploadsLogs ? [Setting(.uploadLogs, text: "Upload logs")] : [])
  }

  /// Where the button is: in the corner while the panel is open, and where it was put last otherwise.
  public func buttonPlace(_ orientation: Orientation) -> Place {
    isOpen ? .bottomRight : memory.places[orientation] ?? .bottomRight
  }

  /// Whether an action of other apps can be selected.
  public func state(of action: QuickAction) -> QuickAction.State {
    let providers = apps.filter { $0.services.contains(action.service) && !$0.isOwn && $0.canBeLaunched }
    return providers.isEmpty ? .notProvided : .enabled(providers.map(\.application))
  }

  /// Whether a list of apps has come.
  public var knowsApps: Bool { appsTime != nil }

  /// Whether the list of apps counts at this time without being asked for anew.
  public func isFresh(at now: Duration) -> Bool {
    guard let appsTime else { return false }
    return switch cacheExpiry {
    case .forever: true
    case .never: false
    // Not as a duration, which has an end.
    case .seconds(let seconds): (now - appsTime) / .seconds(1) < seconds
    }
  }

  private var wantsCoachMark: Bool { !staysOpen && showsCoachMark ?? !memory.hasSeenCoachMark }

  // MARK: Inputs

  /// Changes the state, and returns what has to be done, or why nothing has changed.
  public mutating func apply(_ input: Input) -> Outcome {
    do {
      return Outcome(effects: try change(input))
    } catch {
      return Outcome(ignored: error)
    }
  }

  private mutating func change(_ input: Input) throws(Ignored) -> [Effect] {
    switch input {
    // What an app says of its own holds at any time.
    case .authorized(let isAuthorized): return try setAuthorized(isAuthorized)
    case .setBase(let base): return try set(\.base, base)
    case .setSettings(let settings): return try set(\.ownSettings, settings)
    case .setQuickActions(let actions): return try set(\.quickActions, actions)
    case .setCacheExpiry(let expiry): return try set(\.cacheExpiry, expiry)
    case .setStaysOpen(let stays): return try setStaysOpen(stays)
    case .register(var section):
      if disabled.remove(section.id) != nil { section.isEnabled = false }
      try replace(section, in: \.sections) { $0.id == section.id }
      return []
    case .registerAction(let action):
      try replace(action, in: \.actions) { $0.location == action.location }
      return []
    case .setSectionEnabled(let id, let isEnabled):
      guard let i = sections.firstIndex(where: { $0.id == id }) else {
        // Holds for one that is registered later.
        guard isEnabled ? disabled.remove(id) != nil : disabled.insert(id).inserted else { throw .unchanged }
        return []
      }
      guard sections[i].isEnabled != isEnabled else { throw .unchanged }
      sections[i].isEnabled = isEnabled
      return []
    case .setShowsCoachMark(let shows):
      guard showsCoachMark != shows else { throw .unchanged }
      showsCoachMark = shows
      if !shows, presented == .coachMark { presented = .nothing }
      return presentCoachMark()
    case .setButtonHidden(let isHidden): return try setButtonHidden(isHidden)
    case .placeButton(let place, let orientation):
      guard place.isValid else { throw .invalidPlace }
      guard memory.places[orientation] == nil else { throw .placed }
      memory.places[orientation] = place
      return [.remember(memory)]
    case .launchEnded(let application, let code):
      guard isAuthorized else { throw .notAuthorized }
      launching.remove(application)
      failedLaunch = code.map { FailedLaunch(application: application, code: $0) }
      return code == nil && isOpen ? close() : []
    case .launchBegan(let application):
      guard isAuthorized else { throw .notAuthorized }
      guard launching.insert(application).inserted else { throw .launching }
      failedLaunch = nil
      return []
    case .appsFound(let apps, let time):
      guard isAuthorized else { throw .notAuthorized }
      let sorted = apps.sorted { ($0.name, $0.application.text) < ($1.name, $1.application.text) }
      // The same list stays the same in memory, which is quickly seen.
      if sorted != self.apps { self.apps = sorted }
      appsTime = time
      return []
    case .connected(let isConnected):
      guard isAuthorized else { throw .notAuthorized }
      guard self.isConnected != isConnected else { throw .unchanged }
      self.isConnected = isConnected
      // Nothing is known to move.
      if !isConnected { traffic = [:] }
      return []
    case .trafficFound(let traffic):
      guard isAuthorized else { throw .notAuthorized }
      return try set(\.traffic, traffic)
    case .appsNotFound(let now):
      guard !isFresh(at: now), !apps.isEmpty else { throw .unchanged }
      (apps, appsTime, traffic) = ([], nil, [:])
      return []
    default:
      guard isAuthorized else { throw .notAuthorized }
      return try changeShown(input)
    }
  }

  /// What a person, or the app, does with what is shown.
  private mutating func changeShown(_ input: Input) throws(Ignored) -> [Effect] {
    switch input {
    case .setOpen(let isOpen, let animated): return try setOpen(isOpen, animated: animated)
    case .buttonTapped: return try setOpen(!isOpen, animated: true)
    case .buttonMoved(let place, let orientation):
      guard !isButtonHidden else { throw .buttonHidden }
      guard !isOpen else { throw .panelOpen }
      guard place.isValid else { throw .invalidPlace }
      guard memory.places[orientation] != place else { throw .unchanged }
      memory.places[orientation] = place
      return [.remember(memory)]
    case .selectSection(let id):
      try requireOpen()
      guard let section = sections.first(where: { $0.id == id }) else { throw .unknown }
      guard section.isEnabled else { throw .disabled }
      return close() + [.selectSection(location: section.location)]
    case .selectAction(let location):
      try requireOpen()
      guard actions.contains(where: { $0.location == location }) else { throw .unknown }
      return close() + [.perform(location: location)]
    case .selectQuickAction(let service):
      try requireOpen()
      guard let action = quickActions.first(where: { $0.service == service }) else { throw .unknown }
      guard case .enabled(let apps) = state(of: action) else { throw .disabled }
      return close() + [.quickAction(service, apps)]
    case .presentSettings: return try present(.settings)
    case .openCertificates: return try present(.certificates)
    case .dismissSettings:
      guard presented == .settings else { throw .unchanged }
      presented = .nothing
      return presentCoachMark()
    case .dismiss:
      guard presented != .nothing else { throw .unchanged }
      let wasCoachMark = presented == .coachMark
      presented = .nothing
      guard wasCoachMark else { return presentCoachMark() }
      showsCoachMark = false
      memory.hasSeenCoachMark = true
      return [.remember(memory)]
    case .selectSetting(let kind):
      guard presented == .settings else { throw .panelClosed }
      guard settings.contains(where: { $0.kind == kind }) else { throw .unknown }
      switch kind {
      case .changePassword: return [.changePassword]
      case .uploadLogs: return [.uploadLogs]
      case .own(let id): return [.setting(id)]
      case .launcher:
        presented = .nothing
        return isOpen || isButtonHidden ? [] : open(animated: true)
      }
    case .selectApp(let application):
      try requireOpen()
      guard let app = apps.first(where: { $0.application == application }) else { throw .unknown }
      guard !launching.contains(application) else { throw .launching }
      guard app.canBeLaunched else { throw .notLaunchable }
      failedLaunch = nil
      return app.isOwn ? close() : [.launch(application)]
    default: return []
    }
  }

  private func requireOpen() throws(Ignored) { if !isOpen { throw .panelClosed } }

  private mutating func set<Value: Equatable>(
    _ path: WritableKeyPath<Self, Value>, _ value: Value
  ) throws(Ignored) -> [Effect] {
    guard self[keyPath: path] != value else { throw .unchanged }
    self[keyPath: path] = value
    return []
  }

  private mutating func replace<Element: Equatable>(
    _ element: Element, in path: WritableKeyPath<Self, [Element]>, where isMeant: (Element) -> Bool
  ) throws(Ignored) {
    guard let i = self[keyPath: path].firstIndex(where: isMeant) else {
      self[keyPath: path].append(element)
      return
    }
    guard self[keyPath: path][i] != element else { throw .unchanged }
    self[keyPath: path][i] = element
  }

  private mutating func setAuthorized(_ isAuthorized: Bool) throws(Ignored) -> [Effect] {
    guard self.isAuthorized != isAuthorized else { throw .unchanged }
    if isAuthorized {
      self.isAuthorized = true
      return staysOpen ? open(animated: false) : [.findApps] + presentCoachMark()
    }
    // Nothing of what others are called stays.
    let effects = isOpen ? shut(animated: false) : []
    (self.isAuthorized, presented) = (false, .nothing)
    (apps, appsTime, traffic, isConnected) = ([], nil, [:], true)
    (launching, failedLaunch) = ([], nil)
    return effects
  }

  private mutating func setButtonHidden(_ isHidden: Bool) throws(Ignored) -> [Effect] {
    guard !isOpen else { throw .panelOpen }
    guard isButtonHidden != isHidden else { throw .unchanged }
    view = isHidden ? .closedWithoutButton : .closed
    if isHidden, presented == .coachMark { presented = .nothing }
    return presentCoachMark()
  }

  private mutating func setOpen(_ isOpen: Bool, animated: Bool) throws(Ignored) -> [Effect] {
    guard !isButtonHidden else { throw .buttonHidden }
    guard self.isOpen != isOpen, isOpen || !staysOpen else { throw .unchanged }
    return isOpen ? open(animated: animated) : shut(animated: animated)
  }

  private mutating func open(animated: Bool) -> [Effect] {
    (view, isAnimated) = (.open, animated)
    return [.willOpen, .findApps]
  }

  private mutating func setStaysOpen(_ stays: Bool) throws(Ignored) -> [Effect] {
    guard staysOpen != stays else { throw .unchanged }
    staysOpen = stays
    if stays, presented == .coachMark { presented = .nothing }
    return stays && isAuthorized && !isOpen ? open(animated: false) : presentCoachMark()
  }

  /// After something was chosen, or because a person is done.
  private mutating func close() -> [Effect] {
    guard staysOpen else { return shut(animated: true) }
    failedLaunch = nil
    return []
  }

  private mutating func shut(animated: Bool) -> [Effect] {
    (view, isAnimated, failedLaunch) = (.closed, animated, nil)
    return [.willClose]
  }

  private mutating func present(_ page: Presented) throws(Ignored) -> [Effect] {
    guard presented != page else { throw .unchanged }
    presented = page
    return []
  }

  /// The button is there, nothing lies over it, and a person has not seen what it is for.
  private mutating func presentCoachMark() -> [Effect] {
    if isAuthorized, wantsCoachMark, !isButtonHidden, presented == .nothing { presented = .coachMark }
    return []
  }
}
