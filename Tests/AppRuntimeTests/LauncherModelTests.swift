import AppKinetics
import TestSupport
import Testing

@testable import AppRuntime

/// What a launcher shows, as a value.
struct LauncherModelTests {
  private typealias Model = LauncherModel

  private static func id(_ text: String) -> ApplicationID {
    guard let id = try? ApplicationID(text) else { preconditionFailure("\(text) is an id") }
    return id
  }
  private static let service = WellKnownService.editFile.definition.serviceID
  private static let apps = [
    Model.App(application: id("com.example.own"), name: "Own", isOwn: true, services: [service]),
    Model.App(application: id("com.example.b"), name: "B", state: .notRunning),
    Model.App(application: id("com.example.a"), name: "A", state: .locked, services: [service]),
    Model.App(application: id("com.example.c"), name: "C", state: .notRunning, isInstalled: true),
  ]

  /// Authorized, with the coach mark seen.
  private func model(_ inputs: Model.Input...) -> Model {
    var memory = Model.Memory()
    memory.hasSeenCoachMark = true
    var model = Model(memory)
    for input in [.authorized(true)] + inputs { #expect(model.apply(input).ignored == nil, "\(input)") }
    return model
  }

  // MARK: Views

  @Test func thePanelOpensAndClosesAndTellsThatBefore() {
    var model = model()
    #expect(model.view == .closed)
    #expect(
      model.apply(.setOpen(true, animated: false)).effects == [.willOpen, .findApps])
    #expect(model.view == .open && !model.isAnimated)
    #expect(model.apply(.setOpen(true, animated: true)).ignored == .unchanged)
    #expect(model.apply(.buttonTapped).effects == [.willClose])
    #expect(
      model.view == .closed && model.isAnimated
        && model.apply(.setOpen(false, animated: true)).ignored == .unchanged)
  }

  @Test func aHiddenButtonKeepsThePanelClosedAndAnOpenPanelKeepsTheButton() {
    var hidden = model(.setButtonHidden(true))
    #expect(hidden.view == .closedWithoutButton)
    #expect(hidden.apply(.setOpen(true, animated: true)).ignored == .buttonHidden)
    #expect(hidden.apply(.setOpen(false, animated: true)).ignored == .buttonHidden)
    #expect(hidden.apply(.buttonTapped).ignored == .buttonHidden)
    #expect(hidden.apply(.setButtonHidden(true)).ignored == .unchanged)
    var open = model(.setOpen(true, animated: true))
    for isHidden in [true, false] { #expect(open.apply(.setButtonHidden(isHidden)).ignored == .panelOpen) }
    #expect(open.view == .open)
  }

  // MARK: The button

  @Test func theButtonHasAPlaceInEachOrientation() {
    var model = model()
    #expect(model.buttonPlace(.portrait) == .bottomRight)
    let place = Model.Place(x: 0.25, y: 0.5)
    // The app's place counts once.
    #expect(model.apply(.placeButton(at: place, .portrait)).effects == [.remember(model.memory)])
    #expect(model.apply(.placeButton(at: .bottomRight, .portrait)).ignored == .placed)
    #expect(model.buttonPlace(.portrait) == place && model.buttonPlace(.landscape) == .bottomRight)
    let moved = Model.Place(x: 0, y: 1)
    #expect(model.apply(.buttonMoved(to: moved, .portrait)).ignored == nil)
    #expect(model.buttonPlace(.portrait) == moved && model.memory.places == [.portrait: moved])
    #expect(model.apply(.buttonMoved(to: moved, .portrait)).ignored == .unchanged)
    // In the corner, and fixed, while the panel is open.
    #expect(model.apply(.buttonTapped).ignored == nil && model.buttonPlace(.portrait) == .bottomRight)
    #expect(model.apply(.buttonMoved(to: place, .portrait)).ignored == .panelOpen)
    #expect(model.apply(.buttonTapped).ignored == nil && model.buttonPlace(.portrait) == moved)
    #expect(model.apply(.setButtonHidden(true)).ignored == nil)
    #expect(model.apply(.buttonMoved(to: place, .portrait)).ignored == .buttonHidden)
  }

  @Test(arguments: [(-0.01, 0.5), (0.5, 1.01), (.nan, 0), (0, .infinity)])
  func aPlaceOutsideOfTheScreenIsNone(x: Double, y: Double) {
    var model = model()
    #expect(model.apply(.placeButton(at: .init(x: x, y: y), .landscape)).ignored == .invalidPlace)
    #expect(model.apply(.buttonMoved(to: .init(x: x, y: y), .landscape)).ignored == .invalidPlace)
    #expect(model.buttonPlace(.landscape) == .bottomRight && model.memory.places.isEmpty)
  }

  // MARK: The coach mark

  @Test func theCoachMarkIsShownOnceWithTheButton() {
    var model = Model()
    #expect(model.apply(.setButtonHidden(true)).ignored == nil)
    #expect(model.apply(.authorized(true)).ignored == nil && model.presented == .nothing)
    #expect(model.apply(.setButtonHidden(false)).ignored == nil && model.presented == .coachMark)
    let outcome = model.apply(.dismiss)
    #expect(model.memory.hasSeenCoachMark && outcome.effects == [.remember(model.memory)])
    var next = Model(model.memory)
    #expect(next.apply(.authorized(true)).ignored == nil && next.presented == .nothing)
    #expect(next.apply(.setShowsCoachMark(true)).ignored == nil && next.presented == .coachMark)
    // Said before the button is shown.
    var silent = Model()
    #expect(silent.apply(.setShowsCoachMark(false)).ignored == nil)
    #expect(silent.apply(.authorized(true)).ignored == nil && silent.presented == .nothing)
    #expect(!silent.memory.hasSeenCoachMark)
  }

  // MARK: Contents

  @Test func sectionsAreShownWhenTheyAreEnabled() {
    var model = model(
      .register(.init(id: "docs", title: "Docs", location: "docs://")),
      .register(.init(id: "news", title: "News", location: "news://", isEnabled: false)))
    #expect(model.shownSections.map(\.id) == ["docs"])
    #expect(model.apply(.setSectionEnabled(id: "news", true)).ignored == nil)
    #expect(model.apply(.setSectionEnabled(id: "news", true)).ignored == .unchanged)
    #expect(model.apply(.setSectionEnabled(id: "other", true)).ignored == .unchanged)
    // Also before it is registered.
    #expect(model.apply(.setSectionEnabled(id: "late", false)).ignored == nil)
    #expect(model.apply(.register(.init(id: "late", title: "Late", location: "l"))).ignored == nil)
    #expect(model.shownSections.map(\.id) == ["docs", "news"])
    #expect(model.apply(.selectSection(id: "news")).ignored == .panelClosed)
    #expect(model.apply(.buttonTapped).ignored == nil)
    #expect(
      model.apply(.selectSection(id: "news")).effects
        == [.willClose, .selectSection(location: "news://")])
    #expect(model.apply(.setSectionEnabled(id: "news", false)).ignored == nil)
    #expect(model.apply(.buttonTapped).ignored == nil)
    #expect(model.apply(.selectSection(id: "news")).ignored == .disabled)
    #expect(model.apply(.selectSection(id: "other")).ignored == .unknown)
    // One with a known id takes its place.
    #expect(model.apply(.register(.init(id: "docs", title: "Files", location: "files://"))).ignored == nil)
    #expect(model.sections.map(\.title) == ["Files", "News", "Late"])
  }

  @Test func actionsAreTheAppsOrThoseOfApps() {
    var model = model(
      .registerAction(.init(location: "compose", title: "Compose")),
      .setQuickActions([.init(service: Self.service, title: "Edit")]), .buttonTapped)
    #expect(model.apply(.selectAction(location: "other")).ignored == .unknown)
    #expect(model.apply(.selectAction(location: "compose")).effects.last == .perform(location: "compose"))
    #expect(model.apply(.buttonTapped).ignored == nil)
    #expect(model.state(of: model.quickActions[0]) == .notProvided)
    #expect(model.apply(.selectQuickAction(service: Self.service)).ignored == .disabled)
    #expect(model.apply(.appsFound(Self.apps, at: .zero)).ignored == nil)
    #expect(model.state(of: model.quickActions[0]) == .enabled([Self.id("com.example.a")]))
    #expect(
      model.apply(.selectQuickAction(service: Self.service)).effects.last
        == .quickAction(Self.service, [Self.id("com.example.a")]))
  }

  @Test func settingsAreTheAppsOrThoseOfEveryApp() {
    var model = model()
    #expect(model.settings.map(\.kind) == [.changePassword, .launcher, .uploadLogs])
    #expect(Model(uploadsLogs: false).settings.map(\.kind) == [.changePassword, .launcher])
    #expect(model.apply(.selectSetting(.changePassword)).ignored == .panelClosed)
    #expect(model.apply(.presentSettings).ignored == nil && model.presented == .settings)
    #expect(model.apply(.selectSetting(.changePassword)).effects == [.changePassword])
    #expect(model.apply(.selectSetting(.uploadLogs)).effects == [.uploadLogs])
    #expect(model.apply(.selectSetting(.own("x"))).ignored == .unknown)
    #expect(model.apply(.setSettings([.init(.own("x"), text: "X", tint: "red")])).ignored == nil)
    #expect(model.apply(.selectSetting(.own("x"))).effects == [.setting("x")])
    #expect(model.apply(.selectSetting(.uploadLogs)).ignored == .unknown)
    #expect(model.apply(.setSettings(nil)).ignored == nil && model.settings.count == 3)
    #expect(model.apply(.openCertificates).ignored == nil && model.presented == .certificates)
    #expect(model.apply(.dismissSettings).ignored == .unchanged)
    #expect(model.apply(.dismiss).ignored == nil && model.presented == .nothing)
    #expect(model.apply(.presentSettings).ignored == nil && model.apply(.dismissSettings).ignored == nil)
    #expect(model.apply(.dismiss).ignored == .unchanged)
    #expect(model.apply(.presentSettings).ignored == nil)
    #expect(model.apply(.selectSetting(.launcher)).effects.first == .willOpen && model.view == .open)
  }

  @Test func theBaseIsExchanged() {
    var model = model(.setBase("list"))
    #expect(model.base == "list" && model.apply(.setBase("list")).ignored == .unchanged)
    #expect(model.apply(.setBase(nil)).ignored == nil && model.base == nil)
  }

  // MARK: Apps

  @Test func appsAreInTheOrderOfTheirNamesAndAreLaunchedOnce() {
    var model = model(.appsFound(Self.apps, at: .zero), .buttonTapped)
    #expect(model.apps.map(\.name) == ["A", "B", "C", "Own"])
    #expect(model.apply(.selectApp(Self.id("com.example.b"))).ignored == .notLaunchable)
    #expect(model.apply(.selectApp(Self.id("com.example.none"))).ignored == .unknown)
    let installed = Self.id("com.example.c")
    // As often as a person likes, until the app lets it begin.
    for _ in 0..<2 { #expect(model.apply(.selectApp(installed)).effects == [.launch(installed)]) }
    #expect(model.apply(.launchBegan(installed)).ignored == nil && model.launching == [installed])
    #expect(model.apply(.launchBegan(installed)).ignored == .launching)
    #expect(model.apply(.selectApp(installed)).ignored == .launching)
    #expect(model.apply(.launchEnded(installed, .frontRefused)).ignored == nil)
    #expect(model.failedLaunch == .init(application: installed, code: .frontRefused) && model.isOpen)
    #expect(model.apply(.selectApp(installed)).ignored == nil && model.failedLaunch == nil)
    #expect(model.apply(.launchEnded(installed, nil)).effects.first == .willClose && !model.isOpen)
    #expect(model.launching.isEmpty)
    // The app itself is beneath.
    #expect(model.apply(.buttonTapped).ignored == nil)
    #expect(
      model.apply(.selectApp(Self.id("com.example.own"))).effects == [.willClose])
  }

  @Test(
    arguments: [
      (-1.0, true, true), (0, false, false), (300, true, false), (.infinity, true, true),
      (.greatestFiniteMagnitude, true, true), (.nan, false, false),
    ])
  func aListCountsAsLongAsTheAppSays(seconds: Double, afterOne: Bool, afterManySeconds: Bool) {
    var model = model(.appsFound(Self.apps, at: .seconds(10)))
    _ = model.apply(.setCacheExpiry(.init(seconds)))
    #expect(
      model.isFresh(at: .seconds(11)) == afterOne && model.isFresh(at: .seconds(310)) == afterManySeconds)
    _ = model.apply(.appsNotFound(at: .seconds(11)))
    #expect(model.apps.isEmpty == !afterOne)
    _ = model.apply(.appsNotFound(at: .seconds(310)))
    #expect(model.apps.isEmpty == !afterManySeconds)
  }

  @Test func nothingOfOthersStaysAfterASeal() {
    var model = model(.appsFound(Self.apps, at: .zero), .buttonTapped, .presentSettings)
    #expect(model.apply(.authorized(false)).effects == [.willClose] && !model.isAnimated)
    #expect(model.apps.isEmpty && model.view == .closed && model.presented == .nothing)
    #expect(model.apply(.appsFound(Self.apps, at: .zero)).ignored == .notAuthorized)
    for input: Model.Input in [
      .buttonTapped, .setOpen(true, animated: true), .presentSettings, .openCertificates, .dismiss,
      .selectApp(Self.id("com.example.a")), .buttonMoved(to: .bottomRight, .portrait),
    ] { #expect(model.apply(input).ignored == .notAuthorized, "\(input)") }
    #expect(model.apply(.authorized(true)).effects == [.findApps])
  }

  // MARK: Nothing but a launcher

  @Test func aPanelThatStaysOpenIsOpenWheneverTheAppIsShown() {
    // Without a coach mark, as there is no button.
    var model = Model()
    #expect(model.apply(.setStaysOpen(true)) == .init())
    #expect(model.apply(.setStaysOpen(true)).ignored == .unchanged)
    #expect(model.apply(.authorized(true)).effects == [.willOpen, .findApps])
    #expect(model.isOpen && model.presented == .nothing && !model.isAnimated)
    for input: Model.Input in [.setOpen(false, animated: true), .buttonTapped] {
      #expect(model.apply(input).ignored == .unchanged)
    }
    _ = model.apply(.appsFound(Self.apps, at: .zero))
    let app = Self.id("com.example.a")
    #expect(model.apply(.selectApp(app)).effects == [.launch(app)])
    _ = model.apply(.launchBegan(app))
    #expect(model.apply(.launchEnded(app, .frontRefused)).effects == [])
    #expect(model.failedLaunch?.application == app)
    _ = model.apply(.launchBegan(app))
    #expect(model.apply(.launchEnded(app, nil)).effects == [] && model.isOpen && model.failedLaunch == nil)
    #expect(model.apply(.authorized(false)).effects == [.willClose] && !model.isOpen)
    #expect(model.apply(.authorized(true)).effects == [.willOpen, .findApps])
    #expect(model.apply(.setStaysOpen(false)).ignored == nil && model.isOpen)
    #expect(model.apply(.buttonTapped).effects == [.willClose])
    // Of an app that is shown it opens the panel, whatever lies there.
    for shown in [self.model(), self.model(.setButtonHidden(true)), self.model(.setShowsCoachMark(true))] {
      var shown = shown
      #expect(shown.apply(.setStaysOpen(true)).effects == [.willOpen, .findApps])
      #expect(shown.isOpen && shown.presented == .nothing)
    }
  }

  @Test func trafficEndsWithTheApps() {
    let traffic = [Self.id("com.example.a"): Self.traffic]
    var model = model(.appsFound(Self.apps, at: .zero), .trafficFound(traffic))
    #expect(model.traffic == traffic && model.apply(.trafficFound(traffic)).ignored == .unchanged)
    #expect(model.apply(.authorized(false)).ignored == nil && model.traffic.isEmpty)
    #expect(model.apply(.trafficFound(traffic)).ignored == .notAuthorized)
  }

  @Test func withoutABrokerTheListIsAsItWasAndNothingMoves() {
    let traffic = [Self.id("com.example.a"): Self.traffic]
    var model = model()
    #expect(model.isConnected && !model.knowsApps)
    _ = model.apply(.appsFound(Self.apps, at: .zero))
    _ = model.apply(.trafficFound(traffic))
    #expect(model.apply(.connected(true)).ignored == .unchanged)
    #expect(model.apply(.connected(false)) == .init() && !model.isConnected)
    #expect(model.apps.count == Self.apps.count && model.knowsApps && model.traffic.isEmpty)
    #expect(model.apply(.authorized(false)).ignored == nil && model.isConnected && !model.knowsApps)
    #expect(model.apply(.connected(false)).ignored == .notAuthorized)
  }

  private static let traffic = Provider.Traffic(
    .with {
      ($0.sent.count, $0.sent.waitingCount, $0.arriving.byteCount, $0.arriving.bytesDone) = (2, 9, 5, 7)
    })

  /// Numbers are another app's word.
  @Test func trafficSaysNothingImpossible() {
    #expect(Self.traffic.sent.waitingCount == 2 && Self.traffic.arriving.bytesDone == 5)
  }

  // MARK: A walk

  @Test func noOrderOfInputsLeadsToAStateThatCannotBe() {
    var random = SplitMix64(seed: .random(in: 0 ... .max))
    let ids = Self.apps.map(\.application) + [Self.id("com.example.none")]
    let sections = ["docs", "news"]
    var (model, changes) = (Model(), 0)
    for step in 0..<100_000 {
      func flag() -> Bool { random.oneIn(2) }
      let input: Model.Input =
        switch random.below(29) {
        case 0: .authorized(!random.oneIn(4))
        case 1: .setOpen(flag(), animated: flag())
        case 2: .buttonTapped
        case 3: .setButtonHidden(flag())
        case 4: .buttonMoved(to: .init(x: random.oneIn(8) ? 2 : 0.5, y: 0.5), flag() ? .portrait : .landscape)
        case 5: .placeButton(at: .init(x: 0.1, y: random.oneIn(8) ? .nan : 0.1), .portrait)
        case 6: .setBase(flag() ? "base" : nil)
        case 7: .register(.init(id: sections[random.below(2)], title: "T", location: "l", isEnabled: flag()))
        case 8: .setSectionEnabled(id: sections[random.below(2)], flag())
        case 9: .selectSection(id: sections[random.below(2)])
        case 10: .registerAction(.init(location: "compose", title: flag() ? "Compose" : "New"))
        case 11: .selectAction(location: "compose")
        case 12: .setQuickActions(flag() ? [.init(service: Self.service, title: "Edit")] : [])
        case 13: .selectQuickAction(service: Self.service)
        case 14: .setSettings(flag() ? [.init(.own("x"), text: "X")] : nil)
        case 15: .presentSettings
        case 16: .selectSetting([.changePassword, .launcher, .uploadLogs, .own("x")][random.below(4)])
        case 17: .openCertificates
        case 18: .dismiss
        case 19: .setShowsCoachMark(flag())
        case 20: .setCacheExpiry(.init(Double(random.below(3)) - 1))
        case 21: .appsFound(Array(Self.apps.prefix(random.below(5))), at: .seconds(step))
        case 22: .selectApp(ids[random.below(ids.count)])
        case 23: .launchBegan(ids[random.below(ids.count)])
        case 24: .dismissSettings
        case 25: .setStaysOpen(random.oneIn(4))
        case 27: .connected(flag())
        case 26: .trafficFound(flag() ? [ids[0]: Self.traffic] : [:])
        default: .launchEnded(ids[random.below(ids.count)], flag() ? nil : .frontRefused)
        }
      let before = model
      let outcome = model.apply(input)
      // What is ignored changes nothing and does nothing; what is done is told before the panel moves.
      if outcome.ignored != nil { #expect(model == before && outcome.effects.isEmpty, "\(input)") }
      let moves = before.isOpen != model.isOpen
      let told: [LauncherModel.Effect] = moves ? [model.isOpen ? .willOpen : .willClose] : []
      #expect(outcome.effects.filter { [.willOpen, .willClose].contains($0) } == told, "\(input)")
      if moves { #expect(outcome.effects.first == told.first, "\(input)") }
      if before.isOpen, model.isButtonHidden { Issue.record("\(input) hid the button of an open panel") }
      if !model.isAuthorized {
        #expect(model.apps.isEmpty && !model.isOpen && model.presented == .nothing && model.launching.isEmpty)
      }
      if model.isAuthorized, model.staysOpen { #expect(model.isOpen && model.presented != .coachMark) }
      if !model.isAuthorized { #expect(model.traffic.isEmpty) }
      #expect(!model.memory.places.values.contains { !$0.isValid })
      #expect(model.presented != .coachMark || !model.isButtonHidden)
      if model != before { changes += 1 }
    }
    #expect(changes > 20_000)
  }
}
