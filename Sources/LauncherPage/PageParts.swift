import AppKinetics
import AppRuntime
import Foundation
import SecureFiles
import SodiumPrimitives

/// What the app is, also while it is sealed: its name stands there only while it is shown.
struct AppPart: Encodable {
  var name: String?
  /// `app`, `notActivated`, `blocked`, or what a person is asked for elsewhere.
  var shows: String
  /// What its owner says.
  var message: String
  var opens: Bool
  /// In seconds.
  var sessionTime: Double
  var language: String
  var isRightToLeft: Bool
  var texts: [String: String]

  init(_ authorization: Authorization?, _ name: String, _ options: LauncherPage.Options) {
    let presentation = authorization?.presentation ?? .nothing
    switch presentation {
    case .app: (self.name, shows) = (name, "app")
    case .nothing: shows = "notActivated"
    // Nothing that a person could answer ends it.
    case .asking(.nothing): shows = "blocked"
    case .asking(let question): shows = "\(question)"
    }
    message = authorization?.message ?? ""
    (opens, sessionTime) = (options.opens != nil, options.sessionTime / .seconds(1))
    (language, texts) = (options.language, options.texts)
    isRightToLeft = Locale.Language(identifier: options.language).characterDirection == .rightToLeft
  }
}

struct LauncherPart: Encodable {
  struct Item: Encodable {
    var id: String
    var title: String
    var isEnabled = true
  }

  struct Line: Encodable {
    var kind: String
    var id: String?
    var text: String
    var icon: String?
    var tint: String?
  }

  struct Failure: Encodable {
    var id: String
    var reason: String
  }

  var view: String
  var staysOpen: Bool
  var isConnected: Bool
  var knowsApps: Bool
  var isAnimated: Bool
  var presented: String
  var places: [String: LauncherModel.Place]
  var base: String?
  var sections: [Item]
  var actions: [Item]
  var quickActions: [Item]
  var settings: [Line]
  var launching: [String]
  var failed: Failure?

  init(_ model: LauncherModel) {
    (view, presented) = ("\(model.view)", "\(model.presented)")
    (staysOpen, isAnimated) = (model.staysOpen, model.isAnimated)
    (isConnected, knowsApps) = (model.isConnected, model.knowsApps)
    places = Dictionary(
      uniqueKeysWithValues: LauncherModel.Orientation.allCases.map { ($0.rawValue, model.buttonPlace($0)) })
    base = model.base
    sections = model.shownSections.map { Item(id: $0.id, title: $0.title) }
    actions = model.actions.map { Item(id: $0.location, title: $0.title) }
    quickActions = model.quickActions.map {
      Item(id: $0.service.text, title: $0.title, isEnabled: model.state(of: $0) != .notProvided)
    }
    settings = model.settings.map { setting in
      var line = Line(
        kind: "", text: setting.text, icon: setting.icon.flatMap(PagePicture.text), tint: setting.tint)
      switch setting.kind {
      case .changePassword: line.kind = "changePassword"
      case .launcher: line.kind = "launcher"
      case .uploadLogs: line.kind = "uploadLogs"
      case .own(let id): (line.kind, line.id) = ("own", id)
      }
      return line
    }
    launching = model.launching.map(\.text).sorted()
    failed = model.failedLaunch.map { Failure(id: $0.application.text, reason: $0.code.what) }
  }
}

struct AppsPart: Encodable {
  struct App: Encodable {
    var id: String
    var name: String
    /// Of the icon's bytes, which a tab asks for when it shows them.
    var icon: String?
    var state: String
    var isLaunchable: Bool
    var isInFront: Bool
    var isOwn: Bool
  }

  var apps: [App]

  init(_ model: LauncherModel) {
    apps = model.apps.map { app in
      App(
        id: app.application.text, name: app.name, icon: app.icon.flatMap(PagePicture.name),
        state: "\(app.state)",
        isLaunchable: app.canBeLaunched, isInFront: app.isInFront, isOwn: app.isOwn)
    }
  }
}

/// What apps have on their way, by their ids; of those that have nothing there is nothing.
struct TrafficPart: Encodable {
  struct Way: Encodable {
    var count: UInt64
    var waiting: UInt64
    var bytes: UInt64
    var done: UInt64

    init?(_ way: Provider.Traffic.Way) {
      guard way.count > 0 else { return nil }
      (count, waiting, bytes, done) = (way.count, way.waitingCount, way.byteCount, way.bytesDone)
    }
  }

  struct App: Encodable {
    var sent: Way?
    var arriving: Way?
  }

  var apps: [String: App]

  init(_ model: LauncherModel) {
    let all = model.traffic.map { ($0.text, App(sent: Way($1.sent), arriving: Way($1.arriving))) }
    apps = Dictionary(uniqueKeysWithValues: all.filter { $1.sent != nil || $1.arriving != nil })
  }
}

/// Pictures that apps say are theirs.
enum PagePicture {
  private static let signature: [UInt8] = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]

  /// Base64; nil for what is no PNG.
  static func text(_ data: Data) -> String? { isPNG(data) ? data.base64EncodedString() : nil }

  /// Tells pictures apart; nil for what is no PNG.
  static func name(_ data: Data) -> String? {
    guard isPNG(data) else { return nil }
    return data.withUnsafeBytes { KeyedHash.checksum($0) }.map { String($0, radix: 36) }.joined(
      separator: "-")
  }

  /// A small file may claim to be so large that drawing it takes all memory.
  private static func isPNG(_ data: Data) -> Bool {
    let head = [UInt8](data.prefix(24))
    guard head.count == 24, head.starts(with: signature) else { return false }
    return [head[16..<20], head[20..<24]].allSatisfy { number in
      (1...sideMax).contains(number.reduce(0) { $0 << 8 | UInt32($1) })
    }
  }

  /// In pixels.
  private static let sideMax: UInt32 = 1024
}

struct CertificatesPart: Encodable {
  struct Peer: Encodable {
    var app: String
    var fingerprint: String?
    var newFingerprint: String?
  }

  var own: String
  var peers: [Peer]

  init(_ certificates: Launcher.Certificates) {
    own = certificates.own
    peers = certificates.peers.map {
      Peer(app: $0.application.text, fingerprint: $0.fingerprint, newFingerprint: $0.newFingerprint)
    }
  }
}

struct MessagesPart: Encodable {
  struct Message: Encodable {
    var request: String
    var isReply: Bool
    /// The other app.
    var app: String
    var files: UInt64
    var bytes: UInt64
    var done: UInt64
    /// `underWay`, or what it waits for.
    var state: String
    /// In seconds since 1970.
    var date: Double?
  }

  var sent: [Message]
  var arriving: [Message]
  /// Of all, where fewer are listed.
  var sentCount: Int
  var arrivingCount: Int

  static let countMax = 200

  /// Tells messages apart.
  var ids: Set<String> { Set((sent + arriving).map { "\($0.app) \($0.request) \($0.isReply)" }) }
  /// Whether bytes of any are on their way.
  var isMoving: Bool { (sent + arriving).contains { $0.state == "underWay" } }

  init(_ outbox: [OutboxMessage], _ arriving: [IncomingTransfer]) {
    (sentCount, arrivingCount) = (outbox.count, arriving.count)
    sent = outbox.prefix(Self.countMax).map { message in
      var (done, state) = (UInt64(0), "\(message.state)")
      if case .underWay(let bytesDone) = message.state { (done, state) = (bytesDone, "underWay") }
      return Message(
        request: "\(message.request)", isReply: message.isReply, app: message.receiver.text,
        files: message.fileCount, bytes: message.byteCount, done: done, state: state,
        date: message.date.timeIntervalSince1970)
    }
    self.arriving =
      arriving
      .sorted { ($0.sender.text, "\($0.request)") < ($1.sender.text, "\($1.request)") }.prefix(Self.countMax)
      .map { transfer in
        Message(
          request: "\(transfer.request)", isReply: transfer.isReply, app: transfer.sender.text,
          files: transfer.fileCount, bytes: transfer.byteCount, done: transfer.bytesDone,
          state: transfer.waitsFor.map { "\($0)" } ?? "underWay", date: nil)
      }
  }
}

struct InboxPart: Encodable {
  struct Message: Encodable, Sendable {
    var directory: String
    var app: String
    /// In seconds since 1970.
    var date: Double
    var files: Int
    var bytes: UInt64
    /// Some of its files, below the directory.
    var names: [String]
  }

  /// The newest first.
  var messages: [Message]
  var count: Int

  static let countMax = 200
  static let nameCountMax = 50
}
