import BlackBerryDynamicsTesting
import Locks
import PushTesting
import Testing

@testable import BlackBerryDynamics

/// Writes down what is posted about a channel, and the state that it has then.
private final class Listener: Sendable {
  let told = Told()
  let token = Guarded("")
  private let observers = Guarded<[any NSObjectProtocol]>([])

  init(_ channel: GDPushChannel) {
    let names: [(Notification.Name, String)] = [
      (.GDPushChannelOpened, "opened"), (.GDPushChannelClosed, "closed"), (.GDPushChannelError, "error"),
      (.GDPushChannelMessage, "message"), (.GDPushChannelPingFailed, "ping"),
    ]
    for (name, word) in names {
      let observer = NotificationCenter.default.addObserver(forName: name, object: channel, queue: nil) {
        [weak channel, told, token] in
        let info = $0.userInfo ?? [:]
        if let text = info[GDPushChannelTokenKey] as? String { token.withLock { $0 = text } }
        let what = info[GDPushChannelMessageKey] ?? info[GDPushChannelErrorKey] ?? ""
        told.add("\(word) \(channel?.state.rawValue ?? -1) \(what)")
      }
      observers.withLock { $0.append(observer) }
    }
  }

  deinit {
    for observer in observers.withLock({ $0 }) { NotificationCenter.default.removeObserver(observer) }
  }
}

extension AppTests {
  struct PushTests {
    private func withPush(
      connectTime: Duration? = .seconds(60), _ body: (TestRelay, GDTestApp) async throws -> Void
    ) async throws {
      try await withTestApps { apps in
        let relay = try await TestRelay()
        let app = GDTestApp("com.example.gd", in: apps, relay: relay) {
          $0.pushConnectTime = connectTime
        }
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        try await body(relay, app)
        await app.end()
        await relay.stop()
      }
    }

    @Test func aChannelOpensHearsItsServerAndIsClosed() async throws {
      try await withPush { relay, _ in
        let channel = GDPushChannel(identifier: "com.example.gd.inbox")
        let listener = Listener(channel)
        #expect(channel.state == .none)
        channel.connect()
        try await listener.told.wait(for: "opened 1 ")
        let token = listener.token.withLock { $0 }
        #expect(try await relay.notify(token, "hello") == 100)
        #expect(try await relay.notify(token, "") == 100)
        try await listener.told.wait(for: "message 1 ")
        channel.connect()
        try await listener.told.wait(for: "error 1 0")
        channel.disconnect()
        try await listener.told.wait(for: "closed 2 ")
        channel.connect()
        try await listener.told.wait(for: "opened 1 ", count: 2)
        #expect(listener.token.withLock { $0 } != token)
        #expect(
          listener.told.all == [
            "opened 1 ", "message 1 hello", "message 1 ", "error 1 0", "closed 2 ", "opened 1 ",
          ])
      }
    }

    /// The documented snippet asks before it makes a channel.
    @Test func pushIsAvailableBeforeThereIsAChannel() async throws {
      try await withPush { relay, _ in
        let told = Told()
        let observer = NotificationCenter.default.addObserver(
          forName: .GDReachabilityChanged, object: GDiOS.sharedInstance(), queue: nil
        ) { _ in told.add("\(GDReachability.sharedInstance().isPushChannelAvailable)") }
        defer { NotificationCenter.default.removeObserver(observer) }
        if !GDReachability.sharedInstance().isPushChannelAvailable { try await told.wait(for: "true") }
        #expect(GDReachability.sharedInstance().isPushChannelAvailable)
        await relay.stop()
        try await told.wait(for: "false")
        #expect(GDConnectivityManager.forceResetAllConnections())
      }
    }

    @Test func connectingEndsInAnErrorWithoutARelay() async throws {
      try await withPush(connectTime: .milliseconds(500)) { relay, _ in
        await relay.stop()
        let channel = GDPushChannel(identifier: "com.example.gd.inbox")
        let listener = Listener(channel)
        channel.connect()
        try await listener.told.wait(for: "error 3 0")
        try await relay.start()
        // On a busy machine half a second may be too short once more.
        while channel.state != .open {
          if channel.state == .error { channel.connect() }
          _ = GDConnectivityManager.forceResetAllConnections()
          try await Task.sleep(for: .milliseconds(20))
        }
        try await listener.told.wait(for: "opened 1 ")
      }
    }

    @Test func anAppWithoutARelayHearsSo() async throws {
      try await withGDApp { _, app in
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        let channel = GDPushChannel(identifier: "com.example.gd.inbox")
        let listener = Listener(channel)
        channel.connect()
        try await listener.told.wait(for: "error 0 0")
        #expect(!GDReachability.sharedInstance().isPushChannelAvailable && app.misuses.all.isEmpty)
        #expect(!GDConnectivityManager.forceResetAllConnections())
      }
    }

    @Test func aChannelBeforeTheAuthorizationIsAMisuse() async throws {
      try await withGDApp { _, app in
        let channel = GDPushChannel(identifier: "com.example.gd.inbox")
        channel.connect()
        #expect(!GDReachability.sharedInstance().isPushChannelAvailable)
        #expect(app.misuses.all.map(\.call) == ["GDPushChannel.init", "GDPushChannel.connect"])
      }
    }

    /// The next object of an identifier has its channel at once, whatever the last one waits for.
    @Test func anObjectTakesThePlaceOfAnother() async throws {
      try await withPush { relay, _ in
        var token = ""
        for number in 0..<20 {
          let channel = GDPushChannel(identifier: "com.example.gd.inbox")
          let listener = Listener(channel)
          channel.connect()
          try await listener.told.wait(for: "opened 1 ")
          if number > 0 { #expect(listener.token.withLock { $0 } == token) }
          token = listener.token.withLock { $0 }
          #expect(try await relay.notify(token, "\(number)") == 100)
          try await listener.told.wait(for: "message 1 \(number)")
        }
      }
    }

    /// Objects are made at any time, and work when there is push.
    @Test func aChannelOfALockedAppConnectsAfterwards() async throws {
      try await withPush { _, app in
        try await app.manage(["blocked": ["text": "Blocked."]])
        let channel = GDPushChannel(identifier: "com.example.gd.inbox")
        let listener = Listener(channel)
        channel.connect()
        try await listener.told.wait(for: "error 0 0")
        try await app.manage(["blocked": nil])
        while !GDiOS.sharedInstance().state.isAuthorized { try await Task.sleep(for: .milliseconds(10)) }
        channel.connect()
        try await listener.told.wait(for: "opened 1 ")
        #expect(app.misuses.all.isEmpty)
      }
    }

    /// What the server sends meanwhile is told when the app is shown again, and in the next process.
    @Test func messagesWaitWhileTheAppIsLocked() async throws {
      try await withTestApps { apps in
        let relay = try await TestRelay()
        var token = ""
        let handler = Handler()
        do {
          let app = GDTestApp("com.example.gd", in: apps, relay: relay)
          GDiOS.sharedInstance().authorize(handler)
          try await handler.told.wait(for: "event 0 0")
          let channel = GDPushChannel(identifier: "com.example.gd.inbox")
          let listener = Listener(channel)
          channel.connect()
          try await listener.told.wait(for: "opened 1 ")
          token = listener.token.withLock { $0 }
          GDiOS.sharedInstance().executeBlock("a", withTitle: "", withMessage: "")
          try await handler.told.wait(for: "event 1 -301")
          #expect(try await relay.notify(token, "one") == 100)
          GDiOS.sharedInstance().executeUnblock("a")
          try await listener.told.wait(for: "message 1 one")
          let told = app.callbacks.map(\.description)
          let unblocked = try #require(told.lastIndex(of: "GDStateChangeNotification userInterfaceState"))
          #expect(try #require(told.firstIndex(of: "GDPushChannelMessageNotification")) > unblocked)
          await app.end()
        }
        #expect(try await relay.push(token, "two") == 201)
        let app = GDTestApp("com.example.gd", in: apps, relay: relay)
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0", count: 3)
        let channel = GDPushChannel(identifier: "com.example.gd.inbox")
        let listener = Listener(channel)
        channel.connect()
        try await listener.told.wait(for: "message 1 two")
        #expect(listener.token.withLock { $0 } == token)
        await app.end()
        await relay.stop()
      }
    }
  }
}

struct DefaultRouteTests {
  private static let head =
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"

  private func ipv4(_ name: String, _ destination: String = "00000000", flags: String = "0003") -> String {
    "\(name)\t\(destination)\t0102000A\t\(flags)\t0\t0\t100\t00000000\t0\t0\t0\n"
  }

  private func ipv6(_ name: String, flags: String = "00450003") -> String {
    let zeros = String(repeating: "0", count: 32)
    return
      "\(zeros) 00 \(zeros) 00 fe80000000000000021122fffe334455 00000400 00000001 00000000 \(flags)    \(name)\n"
  }

  private func status(_ ipv4: String?, _ ipv6: String?, wireless: Set<String> = []) -> GDReachabilityStatus {
    DefaultRoute.status(ipv4: ipv4.map { Self.head + $0 }, ipv6: ipv6) { wireless.contains($0) }
  }

  @Test func aRouteToEverywhereIsANetwork() {
    #expect(status(ipv4("eth0"), "") == .viaWiFi)
    #expect(status("", ipv6("wlan0"), wireless: ["wlan0"]) == .viaWiFi)
    #expect(status(ipv4("wwan0"), "") == .viaCellular)
    #expect(status(ipv4("wwan0") + ipv4("eth0"), nil) == .viaWiFi)
    #expect(status(ipv4("wwx001122334455"), ipv6("wwx001122334455")) == .viaCellular)
  }

  @Test func otherRoutesAreNone() {
    #expect(status("", "") == .notReachable)
    #expect(status(ipv4("eth0", "0000A8C0"), "") == .notReachable)
    // Down, and refusing.
    #expect(status(ipv4("eth0", flags: "0002"), ipv6("eth0", flags: "00200200")) == .notReachable)
    #expect(status("", ipv6("lo", flags: "00000001")) == .notReachable)
    #expect(status("eth0\t0000\n\n\t\t\n", "0 0 0\n") == .notReachable)
  }

  @Test func whatCannotBeReadIsANetwork() { #expect(status(nil, nil) == .viaWiFi) }
}
