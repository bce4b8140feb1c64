import AppRuntime
import BlackBerryDynamicsTesting
import Locks
import Testing

@testable import BlackBerryDynamics

/// Stands for the class that an app has, or a module beside it, in the place of the vendor's.
private class Screen: NSObject {}
private final class Table: Screen {}

/// A delegate as existing code has it.
private final class Teller: Screen, GTLauncherViewControllerDelegate {
  let told = Told()
  let queue: DispatchQueue
  let screen = Screen()
  let table: Table?
  let style: GTLCommonSettingsCellConfiguration?
  /// Set: the app keeps handlers.
  let handlers: Guarded<[() -> Void]>?
  let logs = Guarded<[() -> Void]>([])
  let controllers = Guarded<[ObjectIdentifier]>([])

  init(
    _ app: GDTestApp, table: Table? = nil, style: GTLCommonSettingsCellConfiguration? = nil,
    keepsHandlers: Bool = false
  ) {
    (queue, self.table, self.style) = (app.queue, table, style)
    handlers = keepsHandlers ? Guarded([]) : nil
  }

  private func add(_ line: String, _ controller: GTLauncherViewController) {
    dispatchPrecondition(condition: .onQueue(queue))
    controllers.withLock { $0.append(ObjectIdentifier(controller)) }
    told.add(line)
  }

  func launcherViewControllerWillOpen(_ controller: GTLauncherViewController) { add("open", controller) }

  func launcherViewControllerWillClose(_ controller: GTLauncherViewController) { add("close", controller) }

  func launcherViewController(
    _ controller: GTLauncherViewController, shouldExecuteOpenHandler handler: @escaping () -> Void,
    atAddress address: String
  ) -> Bool {
    handlers?.withLock { $0.append(handler) }
    add("launch \(address)", controller)
    return handlers == nil
  }

  func completeAdditionalProcessing(beforeUploadingLogs completionHandler: (() -> Void)? = nil) {
    dispatchPrecondition(condition: .onQueue(queue))
    logs.withLock { $0.append(completionHandler ?? {}) }
    told.add("logs")
  }

  func applicationSettingsTableViewController(forLauncher controller: GTLauncherViewController) -> Table? {
    add("settings", controller)
    return table
  }

  func commonSettingsCellConfiguration(
    for cellType: GTLCommonSettingsCellType, launcherViewController controller: GTLauncherViewController
  ) -> GTLCommonSettingsCellConfiguration? {
    add("style \(cellType.rawValue)", controller)
    return cellType == GTLCommonSettingsCellTypeLauncher ? style : nil
  }

  func launcherViewController(
    _ controller: GTLauncherViewController, viewControllerForLauncherSectionLocation location: String
  ) -> Screen {
    add("section \(location)", controller)
    return screen
  }

  func launcherViewController(
    _ controller: GTLauncherViewController, didSelectLocalActionWithLocation location: String
  ) { add("action \(location)", controller) }

  func launcherViewController(
    _ controller: GTLauncherViewController, didRequestGDAuthTokenForServerName name: String,
    completion: @escaping (String) -> Void
  ) { add("token", controller) }
}

/// A delegate that leaves out all methods.
private final class Silent: NSObject, GTLauncherViewControllerDelegate {}

/// Calls of deprecated members are warnings, and not where they are reached through a protocol.
private protocol Older {
  func callAll()
  static var version: String { get }
}

extension GTLauncherViewController: Older {
  @available(*, deprecated) fileprivate func callAll() {
    startServices()
    startServices(options: GTLInternalGDAuthTokenAndPushConnectionManagement)
    startServices(options: [.hostGDAuthTokenManagement, .hostGDPushConnectionManagement])
    startServices(with: GTLHostGDAuthTokenManagement)
    setGDPushConnectionStatus(1)
  }

  @available(*, deprecated) fileprivate static var version: String { launcherVersion() }
}

extension AppTests {
  struct LauncherTests {
    private let docs = LauncherModel.Input.register(.init(id: "docs", title: "Docs", location: "docs://"))

    private func authorize() async throws {
      let handler = Handler()
      GDiOS.sharedInstance().authorize(handler)
      try await handler.told.wait(for: "event 0 0")
    }

    private var managed: GTLauncherViewController {
      get throws { try #require(GDiOS.sharedInstance().getManagedLauncherViewController()) }
    }

    /// The launcher of the runtime, in the place of a program that draws it.
    private var drawn: Launcher { get throws { try #require(GDConfiguration.launcher) } }

    /// Waits for a state.
    private func until(
      _ launcher: Launcher, _ location: SourceLocation = #_sourceLocation,
      _ isMeant: (LauncherModel) -> Bool
    ) async {
      for await model in launcher.changes where isMeant(model) { return }
      Issue.record("it did not come to that", sourceLocation: location)
    }

    /// Waits until something holds, or ten seconds.
    private func until(_ holds: () -> Bool) async throws {
      for _ in 0..<1000 where !holds() { try await Task.sleep(for: .milliseconds(10)) }
    }

    /// An app that is shown, with its managed object and the launcher of its runtime.
    private func withLauncher(
      _ inputs: [LauncherModel.Input] = [],
      change: @escaping @Sendable (inout GDConfiguration) -> Void = { _ in },
      _ body: (TestApps, GDTestApp, GTLauncherViewController, Launcher) async throws -> Void
    ) async throws {
      let changes: @Sendable (inout GDConfiguration) -> Void = {
        $0.launcherInputs = inputs
        change(&$0)
      }
      try await withGDApp(changes) { apps, app in
        try await authorize()
        try await body(apps, app, managed, drawn)
      }
    }

    // MARK: Which object

    @Test func theManagedObjectIsOneAndThereFromTheStart() async throws {
      try await withGDApp { _, app in
        let before = try managed
        #expect(try before === managed && GDConfiguration.launcher == nil)
        #expect(!before.isOpen && !before.isLauncherButtonHidden && before.baseViewController == nil)
        // It is not shown.
        before.setOpen(true, animated: true)
        before.presentSettings()
        #expect(!before.isOpen && app.misuses.all.isEmpty)
        try await authorize()
        #expect(try before === managed && GDConfiguration.launcher != nil)
        #expect(!before.isOpen)
      }
    }

    @Test func noLauncherStartsWhenItIsOff() async throws {
      try await withLauncherOff { app in
        #expect(GDiOS.sharedInstance().getManagedLauncherViewController() == nil)
        try await authorize()
        #expect(GDiOS.sharedInstance().getManagedLauncherViewController() == nil)
        #expect(GDConfiguration.launcher == nil)
        // An object of the app's own keeps what is set, and opens nothing.
        let own = GTLauncherViewController()
        let teller = Teller(app)
        own.delegate = teller
        own.isOpen = true
        own.isLauncherButtonHidden = true
        await app.settle()
        #expect(!own.isOpen && own.isLauncherButtonHidden && teller.told.all.isEmpty)
      }
    }

    private func withLauncherOff(_ body: (GDTestApp) async throws -> Void) async throws {
      let change: @Sendable (inout GDConfiguration) -> Void = { $0.startsLauncher = false }
      try await withGDApp(change) { _, app in try await body(app) }
    }

    @Test func infoTurnsItOff() {
      let starts = { (value: Any?) in
        GDConfiguration(
          plist: value.map { ["GDDisableAutomaticLauncherManagement": $0] } ?? [:], environment: [:],
          program: "notes"
        ).startsLauncher
      }
      #expect(starts(nil) && starts(false) && !starts(true))
      // Of the wrong type it counts as missing.
      #expect(starts("true"))
    }

    @Test func anObjectOfTheAppsOwnIsTheSameLauncher() async throws {
      try await withLauncher { _, app, managed, _ in
        let screen = Screen()
        var own = GTLauncherViewController(baseViewController: screen)
        #expect(managed.baseViewController === screen && own !== managed)
        let teller = Teller(app)
        own?.delegate = teller
        #expect(managed.delegate === teller)
        let id = try ObjectIdentifier(#require(own))
        own?.isOpen = true
        #expect(managed.isOpen)
        await app.settle()
        own = nil
        managed.isOpen = false
        await app.settle()
        #expect(teller.told.all == ["open", "close"])
        // The object through which the delegate was set is gone.
        #expect(teller.controllers.withLock { $0 } == [id, ObjectIdentifier(managed)])
        #expect(managed.baseViewController === screen)
      }
    }

    // MARK: What is set before

    @Test func whatIsSetBeforeTheRuntimeHoldsFromTheStart() async throws {
      let change: @Sendable (inout GDConfiguration) -> Void = { $0.launcherInputs = [docs] }
      try await withGDApp(change) { _, _ in
        GTLauncherViewController.shouldShowCoachmarkScreen(false)
        GTLauncherViewController.setCacheExpiry(5 * 60)
        #expect(GTLauncherViewController.isSectionEnabled("docs"))
        GTLauncherViewController.setSectionEnabled(false, forSectionWithIdentifier: "docs")
        #expect(!GTLauncherViewController.isSectionEnabled("docs"))
        let own = GTLauncherViewController(baseViewController: Table())
        own?.isLauncherButtonHidden = true
        own?.storeLaunchPadButtonImageViewCenterCoordinates(CGPoint(x: 195, y: 211))
        #expect(own?.isLauncherButtonHidden == true && GDConfiguration.launcher == nil)
        try await authorize()
        let model = try drawn.model
        #expect(model.presented == .nothing && model.cacheExpiry == .seconds(300))
        #expect(model.isButtonHidden && model.base == "Table" && model.shownSections.isEmpty)
        #expect(model.buttonPlace(.portrait) == .init(x: 0.5, y: 0.25))
        #expect(own?.isLauncherButtonHidden == true)
      }
    }

    @Test func whatIsSetBetweenHoldsToo() async throws {
      let change: @Sendable (inout GDConfiguration) -> Void = { $0.launcherInputs = [docs] }
      try await withGDApp(change) { _, app in
        app.setAnswers(false)
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 1 -102")
        // The runtime is there, and nobody was shown the app.
        GTLauncherViewController.setSectionEnabled(false, forSectionWithIdentifier: "docs")
        GTLauncherViewController.shouldShowCoachmarkScreen(false)
        try managed.isLauncherButtonHidden = true
        app.setAnswers(true)
        GDiOS.sharedInstance().authorize()
        try await handler.told.wait(for: "event 0 0")
        let model = try drawn.model
        #expect(model.shownSections.isEmpty && model.presented == .nothing && model.isButtonHidden)
      }
    }

    @Test func aDelegateThatIsSetBeforeIsCalled() async throws {
      try await withGDApp { _, app in
        let teller = Teller(app)
        try managed.delegate = teller
        try await authorize()
        try drawn.apply(.buttonTapped)
        await app.settle()
        #expect(teller.told.all == ["open"])
      }
    }

    // MARK: Panel and button

    @Test func thePanelOpensAndClosesByTheAppAndByThePerson() async throws {
      try await withLauncher { _, app, managed, drawn in
        let teller = Teller(app)
        managed.delegate = teller
        managed.isOpen = true
        #expect(managed.isOpen)
        #expect(drawn.model.isAnimated)
        managed.setOpen(false, animated: false)
        #expect(!managed.isOpen)
        #expect(!drawn.model.isAnimated)
        // It is so already.
        managed.setOpen(false, animated: true)
        drawn.apply(.buttonTapped)
        await app.settle()
        #expect(managed.isOpen && teller.told.all == ["open", "close", "open"])
      }
    }

    @Test func aHiddenButtonKeepsThePanelClosed() async throws {
      try await withLauncher { _, app, managed, _ in
        let teller = Teller(app)
        managed.delegate = teller
        managed.isLauncherButtonHidden = true
        managed.isOpen = true
        managed.setOpen(true, animated: false)
        #expect(managed.isLauncherButtonHidden && !managed.isOpen)
        managed.isLauncherButtonHidden = false
        managed.isOpen = true
        await app.settle()
        #expect(managed.isOpen && teller.told.all == ["open"])
      }
    }

    @Test func anOpenPanelKeepsTheButton() async throws {
      try await withLauncher { _, _, managed, _ in
        managed.isOpen = true
        managed.isLauncherButtonHidden = true
        #expect(managed.isOpen && !managed.isLauncherButtonHidden)
      }
    }

    @Test func aLockClosesThePanel() async throws {
      try await withLauncher { _, app, managed, _ in
        let teller = Teller(app)
        managed.delegate = teller
        managed.isOpen = true
        GDiOS.sharedInstance().executeBlock("block", withTitle: "Blocked", withMessage: "")
        #expect(!managed.isOpen)
        managed.isOpen = true
        await app.settle()
        #expect(!managed.isOpen && teller.told.all == ["open", "close"])
      }
    }

    @Test func theAppPlacesTheButtonOnceInEachOrientation() async throws {
      try await withLauncher { _, _, managed, drawn in
        for point in [CGPoint(x: -1, y: 10), CGPoint(x: 10, y: 845), CGPoint(x: Double.nan, y: 10)] {
          managed.storeLaunchPadButtonImageViewCenterCoordinates(point)
          #expect(drawn.model.buttonPlace(.portrait) == .bottomRight)
        }
        managed.storeLaunchPadButtonImageViewCenterCoordinates(CGPoint(x: 0, y: 422))
        managed.storeLaunchPadButtonImageViewCenterCoordinates(CGPoint(x: 39, y: 84.4))
        #expect(drawn.model.buttonPlace(.portrait) == .init(x: 0, y: 0.5))
        #expect(drawn.model.buttonPlace(.landscape) == .bottomRight)
      }
      let isWide: @Sendable (inout GDConfiguration) -> Void = {
        $0.launcherSize = CGSize(width: 800, height: 400)
      }
      try await withLauncher(change: isWide) { _, _, managed, drawn in
        managed.storeLaunchPadButtonImageViewCenterCoordinates(CGPoint(x: 200, y: 400))
        #expect(drawn.model.buttonPlace(.landscape) == .init(x: 0.25, y: 1))
        #expect(drawn.model.buttonPlace(.portrait) == .bottomRight)
      }
    }

    @Test func baseViewControllersAreExchanged() async throws {
      try await withLauncher { _, _, managed, drawn in
        let screen = Screen()
        managed.baseViewController = screen
        #expect(managed.baseViewController === screen)
        #expect(drawn.model.base == "Screen")
        managed.baseViewController = Table()
        #expect((managed.baseViewController as? Screen) is Table)
        #expect(drawn.model.base == "Table")
        managed.baseViewController = nil
        #expect(managed.baseViewController == nil)
        #expect(drawn.model.base == nil)
      }
    }

    /// As a view controller that puts the launcher back when it goes.
    @Test func aBaseViewControllerMayUseTheLauncherWhenItEnds() async throws {
      final class Last: NSObject {
        let told: Told
        init(_ told: Told) { self.told = told }
        deinit { told.add("\(GTLauncherViewController().isOpen)") }
      }
      try await withLauncher { _, _, managed, _ in
        let told = Told()
        managed.baseViewController = Last(told)
        managed.baseViewController = nil
        #expect(told.all == ["false"])
      }
    }

    // MARK: The delegate

    @Test func aDelegateThatIsGoneIsNotCalled() async throws {
      try await withLauncher([docs]) { _, app, managed, drawn in
        var teller: Teller? = Teller(app)
        let told = try #require(teller).told
        managed.delegate = teller
        teller = nil
        #expect(managed.delegate == nil)
        managed.isOpen = true
        drawn.apply(.selectSection(id: "docs"))
        await app.settle()
        #expect(!managed.isOpen && told.all.isEmpty && managed.sectionViewController == nil)
      }
    }

    @Test func aDelegateWithoutMethodsChangesNothing() async throws {
      let sent = Guarded(0)
      let change: @Sendable (inout GDConfiguration) -> Void = {
        $0.launcherInputs = [docs, .registerAction(.init(location: "compose", title: "Compose"))]
        $0.uploadLogs = { sent.withLock { $0 += 1 } }
      }
      try await withLauncher(change: change) { apps, app, managed, drawn in
        let other = try await apps.start("com.example.other")
        let silent = Silent()
        managed.delegate = silent
        for input in [
          LauncherModel.Input.buttonTapped, .selectSection(id: "docs"), .buttonTapped,
          .selectAction(location: "compose"), .presentSettings, .selectSetting(.uploadLogs),
        ] {
          #expect(drawn.apply(input) == nil)
        }
        #expect(managed.sectionViewController == nil && managed.settingsViewController == nil)
        await app.settle()
        try await until { sent.withLock { $0 } == 1 }
        #expect(sent.withLock { $0 } == 1)
        managed.dismissSettings()
        drawn.apply(.dismiss)
        // The open handler is executed at once.
        await until(drawn) { $0.apps.count == 2 }
        try await apps.bringToFront(ApplicationID("com.example.gd"))
        managed.isOpen = true
        drawn.apply(.selectApp(other.id))
        await until(drawn) { !$0.isOpen }
        #expect(managed.delegate === silent)
      }
    }

    @Test func anotherAppComesToFrontAtOnceOrWhenTheHandlerIsCalled() async throws {
      try await withLauncher { apps, app, managed, drawn in
        let other = try await apps.start("com.example.other")
        var fronts = other.services.frontChanges.makeAsyncIterator()
        await until(drawn) { $0.apps.count == 2 }
        try await apps.bringToFront(ApplicationID("com.example.gd"))
        let keeper = Teller(app, keepsHandlers: true)
        managed.delegate = keeper
        managed.isOpen = true
        drawn.apply(.selectApp(other.id))
        try await keeper.told.wait(for: "launch com.example.other")
        #expect(drawn.model.launching.isEmpty && managed.isOpen)
        let handler = try #require(keeper.handlers?.withLock { $0.first })
        handler()
        // Once is enough.
        handler()
        #expect(await fronts.next() == true)
        await until(drawn) { !$0.isOpen }
        await app.settle()
        #expect(keeper.told.all == ["open", "launch com.example.other", "close"])
        // With true the launcher calls it.
        try await apps.bringToFront(ApplicationID("com.example.gd"))
        #expect(await fronts.next() == false)
        let teller = Teller(app)
        managed.delegate = teller
        managed.isOpen = true
        drawn.apply(.selectApp(other.id))
        #expect(await fronts.next() == true)
        try await teller.told.wait(for: "close")
        #expect(teller.told.all == ["open", "launch com.example.other", "close"])
      }
    }

    @Test func whatFailsToComeToFrontIsSeenInTheModel() async throws {
      try await withLauncher { apps, app, managed, drawn in
        let other = try await apps.start("com.example.other")
        await until(drawn) { $0.apps.count == 2 }
        managed.isOpen = true
        // The app itself is not in front.
        drawn.apply(.selectApp(other.id))
        await until(drawn) { $0.failedLaunch?.code == .notInFront }
        #expect(managed.isOpen)
      }
    }

    @Test func theViewControllerOfASectionIsKept() async throws {
      try await withLauncher([docs]) { _, app, managed, drawn in
        let teller = Teller(app)
        managed.delegate = teller
        managed.isOpen = true
        drawn.apply(.selectSection(id: "docs"))
        try await teller.told.wait(for: "section docs://")
        await app.settle()
        #expect(teller.told.all == ["open", "close", "section docs://"])
        #expect(managed.sectionViewController === teller.screen)
        #expect(managed.baseViewController == nil)
      }
    }

    @Test func localActionsAreToldByTheirLocation() async throws {
      let action = LauncherModel.Input.registerAction(.init(location: "compose", title: "Compose"))
      try await withLauncher([action]) { _, app, managed, drawn in
        let teller = Teller(app)
        managed.delegate = teller
        managed.isOpen = true
        drawn.apply(.selectAction(location: "compose"))
        await app.settle()
        #expect(teller.told.all == ["open", "close", "action compose"])
      }
    }

    // MARK: Sections

    @Test func sectionsAreHiddenAndShown() async throws {
      try await withLauncher([docs]) { _, _, managed, drawn in
        let isEnabled = { GTLauncherViewController.isSectionEnabled("docs") }
        #expect(isEnabled())
        GTLauncherViewController.setSectionEnabled(false, forSectionWithIdentifier: "docs")
        #expect(!isEnabled())
        managed.isOpen = true
        #expect(drawn.apply(.selectSection(id: "docs")) == .disabled)
        GTLauncherViewController.setSectionEnabled(true, forSectionWithIdentifier: "docs")
        #expect(isEnabled())
      }
    }

    @Test func anUnknownSectionIsNotShown() async throws {
      try await withLauncher { _, _, _, drawn in
        #expect(!GTLauncherViewController.isSectionEnabled("docs"))
        GTLauncherViewController.setSectionEnabled(true, forSectionWithIdentifier: "docs")
        #expect(!GTLauncherViewController.isSectionEnabled("docs"))
        GTLauncherViewController.setSectionEnabled(false, forSectionWithIdentifier: "docs")
        drawn.apply(docs)
        #expect(!GTLauncherViewController.isSectionEnabled("docs"))
        GTLauncherViewController.setSectionEnabled(true, forSectionWithIdentifier: "docs")
        #expect(GTLauncherViewController.isSectionEnabled("docs"))
      }
    }

    // MARK: Cache and coach mark

    @Test func aListCountsForEverNeverOrSoManySeconds() async throws {
      try await withLauncher { _, _, _, drawn in
        #expect(drawn.model.cacheExpiry == .forever)
        for (seconds, expiry) in [
          (0.0, .never), (300, .seconds(300)), (1, .seconds(1)), (-1, LauncherModel.CacheExpiry.forever),
        ] {
          GTLauncherViewController.setCacheExpiry(seconds)
          #expect(drawn.model.cacheExpiry == expiry)
        }
      }
    }

    @Test func theCoachMarkIsOverridden() async throws {
      try await withLauncher { _, _, _, drawn in
        #expect(drawn.model.presented == .coachMark)
        GTLauncherViewController.shouldShowCoachmarkScreen(false)
        #expect(drawn.model.presented == .nothing)
        GTLauncherViewController.shouldShowCoachmarkScreen(true)
        #expect(drawn.model.presented == .coachMark)
      }
    }

    // MARK: Settings and certificates

    @Test func theDelegateIsAskedForTheSettings() async throws {
      try await withLauncher { _, app, managed, drawn in
        GTLauncherViewController.shouldShowCoachmarkScreen(false)
        let style = GTLCommonSettingsCellConfiguration.defaultConfiguration(
          for: GTLCommonSettingsCellTypeLauncher)
        (style.icon, style.iconTintColor) = (Data([1]), "#123456")
        let teller = Teller(app, table: Table(), style: style)
        managed.delegate = teller
        managed.presentSettings()
        #expect(drawn.model.presented == .settings)
        try await teller.told.wait(for: "style 2")
        await app.settle()
        // Without a way to send logs there is no line for that.
        #expect(teller.told.all == ["settings", "style 1", "style 2"])
        #expect(managed.settingsViewController === teller.table)
        var settings = drawn.model.settings
        #expect(settings.map(\.kind) == [.changePassword, .launcher])
        #expect(settings.map(\.icon) == [nil, Data([1])] && settings.map(\.tint) == [nil, "#123456"])
        managed.dismissSettings()
        #expect(drawn.model.presented == .nothing)
        // It does not stay.
        try await until { managed.settingsViewController == nil }
        #expect(managed.settingsViewController == nil)
        // A person may present them, too; the default style comes back.
        let plain = Teller(app)
        managed.delegate = plain
        drawn.apply(.presentSettings)
        try await plain.told.wait(for: "style 2")
        await app.settle()
        settings = drawn.model.settings
        #expect(settings.allSatisfy { $0.icon == nil && $0.tint == nil })
        #expect(managed.settingsViewController == nil)
      }
    }

    @Test func settingsOfTheAppsOwnStayAsTheyAre() async throws {
      let own = LauncherModel.Setting(.own("x"), text: "X", icon: Data([7]))
      let change: @Sendable (inout GDConfiguration) -> Void = {
        $0.launcherInputs = [.setSettings([own, .init(.uploadLogs, text: "Logs")])]
      }
      try await withLauncher(change: change) { _, app, managed, drawn in
        let teller = Teller(app)
        managed.delegate = teller
        managed.presentSettings()
        try await teller.told.wait(for: "style 3")
        await app.settle()
        #expect(teller.told.all == ["settings", "style 3"])
        #expect(drawn.model.settings.first == own)
      }
    }

    @Test func aPersonChangesThePassword() async throws {
      try await withTestApps { apps in
        let app = GDTestApp("com.example.gd", in: apps)
        try await authorize()
        try await app.manage(["passwordRules": ["minimumLength": 12]])
        // The first one is refused.
        app.type("short", "battery staple")
        let isAttended = { HostedApp.current.state.withLock { $0.asking } == .attended }
        // The task that asked for the first password may be at work still.
        try await until(isAttended)
        try managed.presentSettings()
        try drawn.apply(.selectSetting(.changePassword))
        try await until { app.asked.count == 3 && isAttended() }
        #expect(app.asked == [.firstPassword, .passwordChange, .passwordChange])
        await app.end()
        let next = GDTestApp("com.example.gd", in: apps, password: "battery staple")
        try await authorize()
        #expect(next.asked == [.password])
        await next.end()
      }
    }

    @Test func logsAreSentWhenTheAppIsReady() async throws {
      let (sent, sending) = AsyncStream.makeStream(of: Void.self)
      let count = Guarded(0)
      let change: @Sendable (inout GDConfiguration) -> Void = {
        $0.uploadLogs = {
          count.withLock { $0 += 1 }
          sending.yield()
        }
      }
      try await withLauncher(change: change) { _, app, managed, drawn in
        let teller = Teller(app)
        managed.delegate = teller
        managed.presentSettings()
        drawn.apply(.selectSetting(.uploadLogs))
        try await teller.told.wait(for: "logs")
        #expect(count.withLock { $0 } == 0)
        let ready = try #require(teller.logs.withLock { $0.first })
        ready()
        ready()
        var wakes = sent.makeAsyncIterator()
        await wakes.next()
        // Without a delegate nobody is waited for.
        managed.delegate = nil
        drawn.apply(.selectSetting(.uploadLogs))
        await wakes.next()
        #expect(count.withLock { $0 } == 2)
      }
    }

    @Test func certificatesAreAPageOfTheirOwn() async throws {
      try await withLauncher { _, _, managed, drawn in
        managed.openCertificatesStatus()
        #expect(drawn.model.presented == .certificates)
        let own = try GDConfiguration.runtime?.services.keyFingerprint
        #expect(await drawn.certificates()?.own == own && own != nil)
      }
    }

    // MARK: Data and deprecated members

    @Test func aStyleHoldsWhatIsSet() {
      let type = GTLCommonSettingsCellConfiguration.self
      let style = type.defaultConfiguration(for: GTLCommonSettingsCellTypeUploadLogs)
      #expect(style !== type.defaultConfiguration(for: GTLCommonSettingsCellTypeUploadLogs))
      #expect(style.icon == nil && style.iconTintColor == nil && style.leftMarginDelta == 0)
      #expect(style.backgroundColor == nil && style.textColor == nil && style.textFont == nil)
      #expect(style.accessoryType == nil && style.accessoryView == nil)
      (style.textColor, style.accessoryType, style.leftMarginDelta) = ("red", 1, 8)
      #expect(style.textColor as? String == "red" && style.accessoryType as? Int == 1)
      #expect(style.leftMarginDelta == 8)
      let types = [
        GTLCommonSettingsCellTypeChangePassword, GTLCommonSettingsCellTypeLauncher,
        GTLCommonSettingsCellTypeUploadLogs,
      ]
      #expect(types.map(\.rawValue) == [1, 2, 3])
    }

    @Test func theMarkerIsAnObject() {
      let marker: AnyObject = GTLauncherSettingsViewController()
      #expect(marker is NSObject)
    }

    @Test func deprecatedCallsDoNothing() async throws {
      try await withGDApp { _, app in
        let teller = Teller(app)
        try managed.delegate = teller
        let launcher: any Older = try managed
        launcher.callAll()
        try await authorize()
        let before = try drawn.model
        launcher.callAll()
        await app.settle()
        #expect(try drawn.model.view == before.view && teller.told.all.isEmpty)
        let older: any Older.Type = GTLauncherViewController.self
        #expect(older.version.split(separator: ".").count == 3)
      }
    }
  }
}
