import Foundation
import PushClient
import PushTesting
import Testing

/// An app, its device and a relay, over real sockets and databases.
@Suite(.timeLimit(.minutes(5))) struct ChannelTests {
  @Test func messagesArriveInOrderByBothWays() async throws {
    let world = try await World()
    let app = try await world.app()
    let channel = app.channel("inbox")
    let token = try await opened(channel)
    #expect(token.split(separator: " ").count == 4 && token.contains("app.gdpush.local"))
    #expect(channel.phase == .open && channel.state == .open && app.isAvailable)
    for number in 0..<50 {
      if number % 2 == 0 {
        #expect(try await world.relay.notify(token, "\(number)") == 100)
      } else {
        #expect(try await world.relay.push(token, "\(number)") == 201)
      }
    }
    #expect(try await texts(channel, 50) == (0..<50).map(String.init))
    await world.end()
  }

  @Test func anEmptyMessageAndTheLargestArrive() async throws {
    let world = try await World()
    let channel = try await world.app().channel("inbox")
    let token = try await opened(channel)
    let large = String(repeating: "ö", count: 1 << 19)
    #expect(try await world.relay.notify(token, "") == 100)
    #expect(try await world.relay.notify(token, large) == 100)
    #expect(try await world.relay.notify(token, large + "x") == 200)
    #expect(try await texts(channel, 2) == ["", large])
    await world.end()
  }

  @Test func disconnectIsForGoodAndConnectGivesANewToken() async throws {
    let world = try await World()
    let channel = try await world.app().channel("inbox")
    let first = try await opened(channel)
    await channel.disconnect()
    #expect(try await next(channel) == .closed(token: first))
    #expect(channel.phase == .disconnected && channel.state == .closed)
    #expect(try await world.relay.notify(first, "x") == 402)
    #expect(try await world.relay.push(first, "x") == 410)
    let second = try await opened(channel)
    #expect(second != first)
    #expect(try await world.relay.notify(second, "y") == 100)
    #expect(try await texts(channel, 1) == ["y"])
    await world.end()
  }

  @Test func messagesStillArriveWhileDisconnecting() async throws {
    let world = try await World()
    let channel = try await world.app().channel("inbox")
    let token = try await opened(channel)
    world.relay.holdCloses(true)
    await channel.disconnect()
    #expect(channel.phase == .disconnecting && channel.state == .open)
    #expect(try await world.relay.notify(token, "late") == 100)
    #expect(try await texts(channel, 1) == ["late"])
    world.relay.holdCloses(false)
    #expect(try await next(channel) == .closed(token: token))
    await world.end()
  }

  @Test func misuseGivesErrorZeroAndChangesNothing() async throws {
    let world = try await World()
    let app = try await world.app()
    let channel = app.channel("inbox")
    await channel.disconnect()
    #expect(try await next(channel) == .error(code: 0))
    #expect(channel.phase == .prepared)
    let token = try await opened(channel)
    await channel.connect()
    #expect(try await next(channel) == .error(code: 0))
    let second = app.channel("inbox")
    await second.connect()
    #expect(try await next(second) == .error(code: 0))
    #expect(second.phase == .prepared && channel.phase == .open)
    #expect(try await world.relay.notify(token, "still here") == 100)
    #expect(try await texts(channel, 1) == ["still here"])
    await world.end()
  }

  @Test func withoutCoverageNotifyIsRefusedAndPushWaits() async throws {
    let world = try await World()
    let app = try await world.app()
    let channel = app.channel("inbox")
    let token = try await opened(channel)
    await world.relay.setCoverage(false)
    try await until { !app.isAvailable }
    try await untilEqual(403) { try await world.relay.notify(token, "lost") }
    #expect(try await world.relay.push(token, "kept") == 201)
    // The loss of the network is no event of the channel.
    #expect(channel.phase == .open)
    await world.relay.setCoverage(true)
    await app.networkChanged()
    #expect(try await texts(channel, 1) == ["kept"])
    #expect(app.isAvailable)
    await world.end()
  }

  @Test func aDeadRelayLosesAndRepeatsNothing() async throws {
    let world = try await World()
    let app = try await world.app()
    let channel = app.channel("inbox")
    let token = try await opened(channel)
    #expect(try await world.relay.push(token, "1") == 201)
    #expect(try await texts(channel, 1) == ["1"])
    #expect(try await world.relay.push(token, "2") == 201)
    await world.relay.kill()
    try await world.relay.start()
    await app.networkChanged()
    #expect(try await world.relay.push(token, "3") == 201)
    #expect(try await texts(channel, 2) == ["2", "3"])
    await world.end()
  }

  @Test func anAppThatIsStartedAgainGetsItsTokenAndWhatWaited() async throws {
    let world = try await World()
    var app = try await world.app()
    var channel = app.channel("inbox")
    let token = try await opened(channel)
    #expect(try await world.relay.notify(token, "shown") == 100)
    #expect(try await texts(channel, 1) == ["shown"])
    // This one is stored by the device, and not shown before the app ends.
    #expect(try await world.relay.notify(token, "taken") == 100)
    try await Task.sleep(for: .milliseconds(200))
    await app.stop()
    #expect(try await world.relay.push(token, "waiting") == 201)
    app = try await world.app()
    channel = app.channel("inbox")
    #expect(try await opened(channel) == token)
    #expect(try await texts(channel, 2) == ["taken", "waiting"])
    await world.end()
  }

  @Test func whatWasNotCompletedComesAgain() async throws {
    let world = try await World()
    var app = try await world.app()
    var channel = app.channel("inbox")
    let token = try await opened(channel)
    for text in ["a", "b"] { #expect(try await world.relay.notify(token, text) == 100) }
    var ids: [PushMessageEvent.ID] = []
    var events = channel.uncompletedEvents.makeAsyncIterator()
    for _ in 0..<2 {
      guard case .message(let message) = await events.next() else { throw Unexpected() }
      ids.append(message.id)
      if message.text == "a" { await channel.complete(message) }
    }
    await app.stop()
    app = try await world.app()
    channel = app.channel("inbox")
    _ = try await opened(channel)
    guard case .message(let again) = try await next(channel) else { throw Unexpected() }
    #expect(again.text == "b" && again.id == ids[1])
    await world.end()
  }

  @Test func whatWasNotCompletedComesAgainAlsoAfterTheEnd() async throws {
    let world = try await World()
    var app = try await world.app()
    var channel = app.channel("inbox")
    let token = try await opened(channel)
    #expect(try await world.relay.notify(token, "precious") == 100)
    var events = channel.uncompletedEvents.makeAsyncIterator()
    guard case .message(let message) = await events.next() else { throw Unexpected() }
    await channel.disconnect()
    #expect(await events.next() == .closed(token: token))
    // The app is killed before it has completed the message.
    await app.stop()
    app = try await world.app()
    channel = app.channel("inbox")
    #expect(try await opened(channel) != token)
    events = channel.uncompletedEvents.makeAsyncIterator()
    guard case .message(let again) = await events.next() else { throw Unexpected() }
    #expect(again.text == "precious" && again.id == message.id)
    await channel.complete(again)
    await app.stop()
    app = try await world.app()
    channel = app.channel("inbox")
    let second = try await opened(channel)
    #expect(try await world.relay.notify(second, "next") == 100)
    #expect(try await texts(channel, 1) == ["next"])
    await world.end()
  }

  @Test func aNewObjectResumesTheChannelOfADroppedOne() async throws {
    let world = try await World()
    let app = try await world.app()
    let token = try await opened(app.channel("inbox"))
    for number in 0..<20 {
      #expect(try await world.relay.notify(token, "\(number)") == 100)
      let channel = app.channel("inbox")
      #expect(channel.phase == .prepared)
      #expect(try await opened(channel) == token)
      #expect(try await texts(channel, 1) == ["\(number)"])
    }
    // While there is one, a second one gets nothing; afterwards it gets the channel.
    let second = app.channel("inbox")
    do {
      let first = app.channel("inbox")
      #expect(try await opened(first) == token)
      await second.connect()
      #expect(try await next(second) == .error(code: 0))
      #expect(first.phase == .open)
    }
    #expect(try await opened(second) == token)
    await world.end()
  }

  /// Nothing tells the device that its connection is dead, except that the network has changed.
  @Test func aConnectionOfTheOldNetworkIsNoticed() async throws {
    let world = try await World()
    let tunnel = try await Tunnel(to: world.relay.deviceURL)
    let app = try await world.app(relay: tunnel.url)
    let channel = app.channel("inbox")
    let token = try await opened(channel)
    tunnel.swallowAll()
    #expect(try await world.relay.push(token, "heard") == 201)
    await app.networkChanged()
    // Without that, after a heartbeat of four minutes.
    #expect(try await within(seconds: 60) { try await texts(channel, 1) } == ["heard"])
    await world.end()
    try await tunnel.close()
  }

  @Test func anAttemptThatHangsInTheOldNetworkBeginsAgain() async throws {
    let world = try await World()
    let tunnel = try await Tunnel(to: world.relay.deviceURL)
    tunnel.swallowNew(true)
    let app = try await world.app(relay: tunnel.url)
    let channel = app.channel("inbox")
    await channel.connect()
    try await until { tunnel.count == 1 }
    tunnel.swallowNew(false)
    await app.networkChanged()
    // An attempt has 10 seconds.
    guard case .opened = try await within(seconds: 8, { try await next(channel) }) else { throw Unexpected() }
    #expect(tunnel.count == 2)
    await world.end()
    try await tunnel.close()
  }

  @Test func theCauseOfAMissingConnectionIsTold() async throws {
    let world = try await World()
    let app = try await world.app()
    #expect(app.connectionState == .idle)
    let channel = app.channel("inbox")
    _ = try await opened(channel)
    #expect(app.connectionState == .connected)
    await world.relay.stop()
    var states = app.connectionStates.makeAsyncIterator()
    while let state = await states.next(), state != .failed(.refused) {
      #expect([.connected, .failed(.stopping), .failed(.lost)].contains(state))
      await app.networkChanged()
    }
    #expect(app.connectionState == .failed(.refused))
    await app.stop()
    // A port of a relay that is not for devices.
    var http = try #require(URLComponents(url: world.relay.serverURL, resolvingAgainstBaseURL: false))
    http.scheme = "ws"
    let other = try await world.app(relay: http.url)
    try await world.relay.start()
    await other.channel("inbox").connect()
    try await until { other.connectionState == .failed(.noRelay) }
    await world.end()
  }

  @Test func pushMayBeAvailableBeforeThereIsAChannel() async throws {
    let world = try await World()
    let app = try await world.app { $0.staysConnected = true }
    try await until { app.isAvailable }
    #expect(try await !opened(app.channel("inbox")).isEmpty)
    await app.stop()
    // A stream that is asked for too late ends at once.
    for await _ in app.availability {}
    for await phase in app.channel("other").phases { #expect(phase == .prepared) }
    await world.end()
  }

  @Test(arguments: [true, false]) func connectingEndsWhenTheAppOrTheTimeSaysSo(byTime: Bool) async throws {
    let world = try await World()
    await world.relay.stop()
    let app = try await world.app { if byTime { $0.connectTime = .milliseconds(300) } }
    let channel = app.channel("inbox")
    var phases = channel.phases.makeAsyncIterator()
    #expect(await phases.next() == .prepared)
    await channel.connect()
    #expect(await phases.next() == .connecting)
    if !byTime { await channel.giveUp() }
    #expect(try await next(channel) == .error(code: 0))
    #expect(await phases.next() == .failed)
    #expect(channel.state == .error)
    // It begins anew, and the channel that was given up is the one that opens.
    try await world.relay.start()
    var token: String?
    while token == nil {
      await channel.connect()
      await app.networkChanged()
      // On a busy machine the time may be too short once more.
      switch try await next(channel) {
      case .opened(let opened, _, _): token = opened
      case let other: #expect(other == .error(code: 0) && byTime)
      }
    }
    while let phase = await phases.next(), phase != .open { #expect([.connecting, .failed].contains(phase)) }
    // What is open is not given up.
    await channel.giveUp()
    #expect(try await world.relay.notify(try #require(token), "still") == 100)
    #expect(try await texts(channel, 1) == ["still"])
    await world.end()
  }

  @Test func aRelayThatHasLostItsStateEndsTheChannel() async throws {
    let world = try await World()
    let app = try await world.app()
    let channel = app.channel("inbox")
    let token = try await opened(channel)
    try await world.relay.loseEverything()
    await app.networkChanged()
    #expect(try await next(channel) == .error(code: 502))
    #expect(channel.phase == .failed && channel.state == .error)
    #expect(try await world.relay.notify(token, "x") == 402)
    #expect(try await opened(channel) != token)
    await world.end()
  }

  @Test func theOperatorRevokesAToken() async throws {
    let world = try await World()
    let channel = try await world.app().channel("inbox")
    let token = try await opened(channel)
    #expect(try await world.relay.push(token, "before") == 201)
    try await world.relay.revoke(token)
    #expect(try await texts(channel, 1) == ["before"])
    #expect(try await next(channel) == .error(code: 504))
    #expect(try await world.relay.push(token, "x") == 410)
    await world.end()
  }

  @Test func aChannelThatNobodyConnectsIsAbandoned() async throws {
    let world = try await World()
    var app = try await world.app()
    let token = try await opened(app.channel("inbox"))
    await app.stop()
    #expect(try await world.relay.push(token, "old", seconds: 604_800) == 201)
    try await world.relay.advance(by: .seconds(6 * 86_400))
    #expect(try await world.relay.push(token, "new") == 201)
    try await world.relay.advance(by: .seconds(2 * 86_400))
    #expect(try await world.relay.push(token, "x") == 410)
    app = try await world.app()
    let channel = app.channel("inbox")
    #expect(try await opened(channel) == token)
    #expect(try await next(channel) == .error(code: 506))
    await world.end()
  }

  @Test func manyChannelsShareOneConnection() async throws {
    let world = try await World()
    let app = try await world.app()
    var channels: [PushChannel] = []
    for number in 0..<20 { channels.append(app.channel("channel \(number)")) }
    var tokens: [String] = []
    for channel in channels { tokens.append(try await opened(channel)) }
    #expect(Set(tokens).count == 20)
    for round in 0..<3 {
      for token in tokens { #expect(try await world.relay.push(token, "\(round)") == 201) }
    }
    for channel in channels { #expect(try await texts(channel, 3) == ["0", "1", "2"]) }
    await world.end()
  }

  /// A quota ends no channel: it opens when the device may have another one.
  @Test func aChannelOverTheQuotaOpensLater() async throws {
    let world = try await World()
    let app = try await world.app()
    for number in 0..<60 { _ = try await opened(app.channel("channel \(number)")) }
    let late = app.channel("late")
    await late.connect()
    let event = Task { try await next(late) }
    try await Task.sleep(for: .milliseconds(300))
    #expect(late.phase == .connecting)
    try await world.relay.advance(by: .seconds(61))
    guard case .opened(let token, _, _) = try await event.value else { throw Unexpected() }
    #expect(try await world.relay.notify(token, "late") == 100)
    #expect(try await texts(late, 1) == ["late"])
    await world.end()
  }

  @Test func aTopicReplacesWhatWasNotSent() async throws {
    let world = try await World()
    var app = try await world.app()
    let token = try await opened(app.channel("inbox"))
    await app.stop()
    for number in 1...3 { #expect(try await world.relay.push(token, "news \(number)", topic: "news") == 201) }
    #expect(try await world.relay.push(token, "other") == 201)
    app = try await world.app()
    let channel = app.channel("inbox")
    _ = try await opened(channel)
    #expect(try await texts(channel, 2) == ["news 3", "other"])
    await world.end()
  }

  @Test func whatHasExpiredIsNotShown() async throws {
    let world = try await World()
    var app = try await world.app()
    let token = try await opened(app.channel("inbox"))
    await app.stop()
    #expect(try await world.relay.push(token, "short", seconds: 10) == 201)
    #expect(try await world.relay.push(token, "at once", seconds: 0) == 201)
    #expect(try await world.relay.push(token, "long", seconds: 100) == 201)
    try await world.relay.advance(by: .seconds(20))
    app = try await world.app()
    let channel = app.channel("inbox")
    _ = try await opened(channel)
    #expect(try await texts(channel, 1) == ["long"])
    #expect(try await world.relay.push(token, "connected", seconds: 0) == 201)
    #expect(try await texts(channel, 1) == ["connected"])
    await world.end()
  }

  @Test func aSecondRuntimeDoesNotGetTheState() async throws {
    let world = try await World()
    _ = try await opened(try await world.app().channel("inbox"))
    await #expect(throws: PushError.self) { try await world.app() }
    await world.end()
  }

  @Test func theStateNeedsItsKey() async throws {
    let world = try await World()
    let app = try await world.app()
    _ = try await opened(app.channel("inbox"))
    await app.stop()
    world.key[0] ^= 1
    await #expect(throws: PushError.self) { try await world.app() }
    await world.end()
  }

  @Test func theGateHoldsBackConnectionAndEvents() async throws {
    let world = try await World()
    let gate = ScriptedGate()
    let app = try await world.app(gate: gate)
    let channel = app.channel("inbox")
    await channel.connect()
    try await Task.sleep(for: .milliseconds(200))
    #expect(!app.isAvailable)
    gate.set(mayConnect: true, mayShow: true)
    guard case .opened(let token, _, _) = try await next(channel) else { throw Unexpected() }
    gate.set(mayConnect: true, mayShow: false)
    try await Task.sleep(for: .milliseconds(100))
    #expect(try await world.relay.notify(token, "locked") == 100)
    let shown = Task { try await next(channel) }
    try await Task.sleep(for: .milliseconds(200))
    #expect(app.isAvailable)
    gate.set(mayConnect: false, mayShow: false)
    try await until { !app.isAvailable }
    gate.set(mayConnect: true, mayShow: true)
    guard case .message(let message) = try await shown.value else { throw Unexpected() }
    #expect(message.text == "locked")
    await world.end()
  }

  @Test @MainActor func eventsArePostedAsNotifications() async throws {
    let world = try await World()
    let channel = try await world.app().channel("inbox")
    let center = NotificationCenter()
    let posted = AsyncStream.makeStream(of: String.self)
    var observers: [any NSObjectProtocol] = []
    for (name, key) in [
      (Notification.Name.pushChannelOpened, PushChannelKey.token),
      (.pushChannelMessage, PushChannelKey.message), (.pushChannelClosed, PushChannelKey.token),
    ] {
      observers.append(
        center.addObserver(forName: name, object: channel, queue: nil) { notification in
          posted.continuation.yield(notification.userInfo?[key] as? String ?? "?")
        })
    }
    let task = channel.postNotifications(to: center)
    await channel.connect()
    var texts = posted.stream.makeAsyncIterator()
    let token = try #require(await texts.next())
    #expect(try await world.relay.notify(token, "hello") == 100)
    #expect(await texts.next() == "hello")
    await channel.disconnect()
    #expect(await texts.next() == token)
    task.cancel()
    for observer in observers { center.removeObserver(observer) }
    await world.end()
  }
}
