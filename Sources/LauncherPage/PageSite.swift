import AppKinetics
import Foundation
import Locks
import NIOHTTP1

/// What is answered to whom (Documentation/LAUNCHER-PAGE.md, "Requests").
final class PageSite: Sendable {
  private struct State {
    var sessions: PageSessions
    /// Tabs by their numbers on the board, the oldest first, and their sessions.
    var tabs: [(number: UInt64, session: String)] = []
    /// Tabs that had to make room.
    var displaced: Set<UInt64> = []
    var hasStopped = false
  }

  private let origin: String
  private let board: Board
  private let actions: PageActions
  private let link: PageLink
  private let options: LauncherPage.Options
  private let state: Guarded<State>
  private let timer = Guarded<(any AppTimer)?>(nil)
  /// A browser has six connections to an address, and has to have some for what a person does.
  private static let tabCountMax = 4

  init(
    _ origin: String, _ board: Board, _ actions: PageActions, _ link: PageLink,
    _ options: LauncherPage.Options
  ) {
    (self.origin, self.board, self.actions, self.link, self.options) = (origin, board, actions, link, options)
    state = Guarded(State(sessions: PageSessions(time: options.sessionTime)))
    timer.withLock { $0 = options.clock.makeTimer { [weak self] in self?.expire() } }
  }

  /// Leads to the page by a new token.
  func writeLink() throws { try link.lead(to: "\(origin)/#\(state.withLock { $0.sessions.drawToken() })") }

  func stop() {
    let tabs = state.withLock { state in
      state.hasStopped = true
      defer { state.tabs = [] }
      return state.tabs.map(\.number)
    }
    for tab in tabs { board.close(tab) }
    timer.withLock { $0.take() }?.cancel()
    link.remove()
  }

  // MARK: Requests

  func answer(_ request: PageServer.Request) async -> PageServer.Answer {
    guard request.headers["Host"] == [String(origin.dropFirst("http://".count))] else {
      return refusal(.misdirectedRequest, "the page has another address")
    }
    switch request.method {
    case .GET, .HEAD: return file(request)
    case .POST: return await post(request)
    default: return refusal(.methodNotAllowed, "GET and POST are answered", [("Allow", "GET, HEAD, POST")])
    }
  }

  /// The page itself holds nothing of the app.
  private func file(_ request: PageServer.Request) -> PageServer.Answer {
    let isPage = request.path == "/"
    if let site = request.headers["Sec-Fetch-Site"].first {
      // The link leads here from elsewhere, as a bookmark does. Nobody else needs a part of it.
      let leadsHere = isPage && request.headers["Sec-Fetch-Dest"] == ["document"]
      guard site == "same-origin" || leadsHere else {
        return refusal(.forbidden, "this comes from another site")
      }
    }
    switch request.path {
    case "/": return answer(.ok, "text/html; charset=utf-8", PackageResources.launcher_html)
    case "/launcher.js": return answer(.ok, "text/javascript; charset=utf-8", PackageResources.launcher_js)
    case "/launcher.css": return answer(.ok, "text/css; charset=utf-8", PackageResources.launcher_css)
    default: return refusal(.notFound, "there is no such page")
    }
  }

  private struct Token: Decodable {
    var token: String
  }

  private struct Challenge: Decodable {
    var id: String
    var nonce: String
  }

  private struct Proof: Encodable {
    var proof: String
  }

  private struct Tab: Decodable {
    /// The numbers of the parts that it has.
    var have: [String: UInt64]
  }

  private func post(_ request: PageServer.Request) async -> PageServer.Answer {
    // Other sites can send, but not under this origin, nor this type without asking first.
    guard request.headers["Origin"] == [origin] else {
      return refusal(.forbidden, "this comes from another site")
    }
    guard request.headers["Content-Type"] == ["application/json"] else {
      return refusal(.unsupportedMediaType, "it takes application/json")
    }
    switch request.path {
    case "/session": return await with(Token.self, request) { self.open($0.token) }
    case "/proof": return await with(Challenge.self, request, prove)
    case "/events", "/do", "/icons", "/leave":
      let now = options.clock.now
      let header = request.headers["Launcher-Session"]
      let id: String? = state.withLock { state in
        _ = state.sessions.expire(at: now)
        guard header.count == 1, let id = state.sessions.id(of: header[0]) else { return nil }
        if request.path == "/do" { state.sessions.use(id, at: now) }
        return id
      }
      guard let id else { return refusal(.unauthorized, "there is no such session") }
      var answer = await post(request, in: id)
      answer.isOfSession = true
      return answer
    default: return refusal(.notFound, "there is no such page")
    }
  }

  private func post(_ request: PageServer.Request, in session: String) async -> PageServer.Answer {
    switch request.path {
    case "/events": return await with(Tab.self, request) { self.events($0.have, in: session) }
    case "/do": return await with(PageAction.self, request) { self.json(await self.actions.carryOut($0)) }
    case "/icons": return await with([String].self, request) { self.json(self.actions.icons($0)) }
    default:
      end { $0.end(session) }
      return json(PageActions.Outcome())
    }
  }

  private func open(_ token: String) -> PageServer.Answer {
    let now = options.clock.now
    guard let grant = state.withLock({ $0.sessions.exchange(token, at: now) }) else {
      return refusal(.unauthorized, "this link was used, or is an old one")
    }
    do { try writeLink() } catch {
      options.logger.error("the launcher's link cannot be written", metadata: ["error": "\(error)"])
    }
    expire()
    return json(grant)
  }

  private func prove(_ challenge: Challenge) -> PageServer.Answer {
    guard challenge.nonce.utf8.count <= 128,
      let proof = state.withLock({ $0.sessions.proof(of: challenge.id, challenge.nonce, at: origin) })
    else { return refusal(.unauthorized, "there is no such session") }
    return json(Proof(proof: proof))
  }

  // MARK: Tabs

  private func events(_ have: [String: UInt64], in session: String) -> PageServer.Answer {
    let body: @Sendable (PageServer.Sender) async throws -> Void = { [self] send in
      let (tab, changes) = board.open()
      defer { leave(tab) }
      enter(session, tab)
      actions.tabCame()
      var have = have
      for await _ in changes {
        // What was to be said before the session's end is not.
        guard state.withLock({ $0.sessions.sessions[session] != nil }) else { break }
        let lines = board.lines(beyond: &have)
        if !lines.isEmpty { try await send(lines) }
        // What moves all the time is shown ten times a second.
        try await Task.sleep(for: .milliseconds(100))
      }
      if state.withLock({ $0.displaced.remove(tab) }) != nil { try await send(Board.displaced) }
    }
    return PageServer.Answer(
      status: .ok, headers: Self.headers + [("Content-Type", "application/x-ndjson")], body: .lines(body))
  }

  /// A tab ends with its session, and when there are too many.
  private func enter(_ session: String, _ tab: UInt64) {
    let surplus: UInt64? = state.withLock { state in
      guard !state.hasStopped, state.sessions.sessions[session] != nil else { return tab }
      state.tabs.append((tab, session))
      guard state.tabs.count > Self.tabCountMax else { return nil }
      let oldest = state.tabs.removeFirst().number
      state.displaced.insert(oldest)
      return oldest
    }
    if let surplus { board.close(surplus) }
  }

  private func leave(_ tab: UInt64) {
    board.close(tab)
    state.withLock { state in
      state.tabs.removeAll { $0.number == tab }
      state.displaced.remove(tab)
    }
  }

  private func expire() {
    let now = options.clock.now
    if let due = end({ $0.expire(at: now) }) { timer.withLock { $0?.set(to: due) } }
  }

  /// Ends sessions, and their tabs.
  private func end<R>(_ body: (inout PageSessions) -> R) -> R {
    let (result, ended) = state.withLock { state in
      let result = body(&state.sessions)
      let ended = state.tabs.filter { state.sessions.sessions[$0.session] == nil }.map(\.number)
      state.tabs.removeAll { ended.contains($0.number) }
      return (result, ended)
    }
    for tab in ended { board.close(tab) }
    return result
  }

  // MARK: Answers

  private func with<Value: Decodable>(
    _ type: Value.Type, _ request: PageServer.Request, _ body: (Value) async -> PageServer.Answer
  ) async -> PageServer.Answer {
    guard let value = try? JSONDecoder().decode(type, from: Data(request.body)) else {
      return refusal(.badRequest, "this cannot be read")
    }
    return await body(value)
  }

  /// For everything that is answered.
  private static let headers: [(String, String)] = [
    (
      "Content-Security-Policy",
      """
      default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; \
      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'
      """
    ),
    ("X-Content-Type-Options", "nosniff"), ("X-Frame-Options", "DENY"), ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"), ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Embedder-Policy", "require-corp"), ("Cache-Control", "no-store"),
  ]

  private func answer(_ status: HTTPResponseStatus, _ type: String, _ bytes: [UInt8]) -> PageServer.Answer {
    PageServer.Answer(status: status, headers: Self.headers + [("Content-Type", type)], body: .whole(bytes))
  }

  private func json(_ value: some Encodable) -> PageServer.Answer {
    guard let data = try? JSONEncoder().encode(value) else {
      return refusal(.internalServerError, "the answer cannot be written")
    }
    return answer(.ok, "application/json", Array(data))
  }

  private func refusal(
    _ status: HTTPResponseStatus, _ text: String, _ headers: [(String, String)] = []
  ) -> PageServer.Answer {
    var answer = answer(status, "text/plain; charset=utf-8", Array((text + "\n").utf8))
    answer.headers += headers
    return answer
  }
}
