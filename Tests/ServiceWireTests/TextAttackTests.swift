import Foundation
import ServiceValues
import Testing

@testable import ServiceWire

/// Texts that are made to be slow: where one is compared or hashed as a `String`, half a megabyte of marks takes minutes of a processor.
struct TextAttackTests {
  private let a = "com.example.a"
  /// Marks of two classes in turn: the normal form sorts them, which costs the square of their number.
  private static let marks = String(repeating: "\u{301}\u{316}", count: 1 << 17)
  /// As long as a text that is compared or hashed takes minutes, and a busy machine does not.
  private static let time = Duration.seconds(20)

  private func expectSoon(_ what: String, _ body: () throws -> Void) rethrows {
    let spent = try ContinuousClock().measure(body)
    #expect(spent < Self.time, "\(what) took \(spent)")
  }

  /// Each text of a broker's client, in a message of its own, and what becomes of the connection; nil: it goes on.
  @Test func noTextOfAClientCostsTheBrokerMore() {
    let marks = Self.marks
    let id = a + marks
    let questions: [(String, WireQuestion.OneOf_Kind, ProtocolFault?)] = [
      ("Connect.app_id", .connect(.with { $0.appID = id }), .malformed),
      ("BringToFront.app_id", .bringToFront(.with { $0.appID = id }), .malformed),
      ("Find.service_id", .find(.with { $0.serviceID = id }), .malformed),
      ("Find.version", .find(.with { $0.version = "1" + marks }), .malformed),
      ("Find.app_id", .find(.with { $0.appID = id }), .malformed),
      ("Find.after", .find(.with { $0.after = id }), .malformed),
      ("Watch.service_id", .watch(.with { $0.serviceID = id }), .malformed),
      ("Watch.version", .watch(.with { $0.version = "1" + marks }), .malformed),
      ("Watch.app_id", .watch(.with { $0.appID = id }), .malformed),
      // As many as a filter took before: compared with each service of each app.
      (
        "short Find.service_id", .find(.with { $0.serviceID = String(marks.unicodeScalars.prefix(120)) }),
        .malformed
      ),
      ("Register.name", .register(.with { $0.name = marks }), nil),
      ("Register.entitlement_id", .register(.with { $0.entitlementID = marks }), nil),
      ("Register.entitlement_version", .register(.with { $0.entitlementVersion = marks }), nil),
      ("Service.id", .register(.with { $0.services = [.with { $0.id = id }] }), nil),
      (
        "Service.version",
        .register(
          .with {
            $0.services = [
              .with {
                $0.id = a
                $0.version = "1" + marks
              }
            ]
          }), nil
      ),
    ]
    let tools: [(String, WireAdminister, ProtocolFault?)] = [
      ("ListApps.after", .with { $0.listApps.after = id }, .malformed),
      ("forget", .with { $0.forget = id }, .malformed),
      ("front", .with { $0.front = id }, .malformed),
      ("uninstall", .with { $0.uninstall = id }, .malformed),
      ("Install.app_id", .with { $0.install.appID = id }, nil),
      (
        "Install.program",
        .with {
          $0.install.appID = a
          $0.install.program.path = "/" + marks
        }, nil
      ),
      ("add Rule.consumer", .with { $0.addRule.consumer = id }, nil),
      ("remove Rule.provider", .with { $0.removeRule.provider = id }, nil),
      (
        "remove Rule.method",
        .with {
          $0.removeRule = .with {
            $0.serviceID = a
            $0.version = "1"
            $0.method = marks
          }
        }, nil
      ),
    ]
    let world = BrokerWorld()
    for (name, question, fault) in questions {
      expectSoon(name) {
        let app = world.enrol(a)
        world.ask(app, question)
        #expect(world.closed[app] == fault, "\(name)")
        world.disconnect(app)
      }
    }
    for (name, message, fault) in tools {
      expectSoon(name) {
        let tool = world.attend()
        world.ask(tool, .administer(message))
        #expect(world.closed[tool] == fault, "\(name)")
        world.disconnect(tool)
      }
    }
    expectSoon("Enrol") {
      let app = world.enrol(id)
      let user = world.enrol(a, user: marks)
      #expect(world.closed[app] == .malformed && world.closed[user] == .malformed)
    }
  }

  @Test func noDefinitionCostsTheBrokerMore() throws {
    let world = BrokerWorld()
    let app = world.enrol(a)
    let marks = String(Self.marks.unicodeScalars.prefix(14_000))
    let texts = [
      #"{"\#(marks)": 1, "service-id": "com.example.s", "version": "1", "methods": {}}"#,
      #"{"service-id": "com.example.s", "version": "1", "methods": {"a\#(marks)": {}, "a": {}}}"#,
      #"{"service-id": "com.example.s\#(marks)", "version": "1", "methods": {}}"#,
    ]
    for text in texts {
      let registration = WireRegister.with {
        $0.services = (0..<16).map { number in
          .with {
            $0.id = "com.example.s"
            $0.version = "\(number + 1)"
            $0.definition = Data(text.utf8)
          }
        }
      }
      expectSoon("a definition") { #expect(world.error(app, .register(registration)) == 24) }
      // The text is what is wrong, and not something behind it: it was not compared or hashed as it was.
      let detail = world.last(app)?.answer.failure.detail ?? ""
      #expect(detail.contains("more than 255 bytes") || detail.contains("service-id"), "\(detail)")
    }
  }

  @Test func noKeyOfAParameterCostsAnAppMore() {
    let key = "a" + Self.marks
    let wire = WireValue.with {
      $0.object.members = [key, key + "\u{301}", "a"].map { name in
        .with {
          $0.name = name
          $0.value.integer = 1
        }
      }
    }
    expectSoon("keys") {
      #expect {
        try ServiceValue(wire)
      } throws: { error in
        let error = error as? ServicesError
        return error?.code == .invalidParams && error?.detail?.contains("more than 255 bytes") == true
          && error?.path?.utf8.count ?? .max < 1000
      }
    }
    // The values of keys are never compared in their normal form.
    expectSoon("texts") {
      let value = ServiceValue.string(Self.marks)
      #expect(value != .string(Self.marks + "a"))
      #expect(value.hashValue == ServiceValue.string(Self.marks).hashValue)
    }
  }

  @Test func namesWithMarksStayPossible() throws {
    let names = ["e\u{301}", "a" + String(repeating: "\u{301}", count: 127), "\u{1100}\u{1161}\u{11a8}"]
    let value = ServiceValue.object(Dictionary(uniqueKeysWithValues: names.map { ($0, .null) }))
    #expect(try ServiceValue(WireValue(value)) == value)
    #expect(throws: ServicesError.self) {
      try ServiceValue.object(["ab" + String(repeating: "\u{301}", count: 127): .null]).validate()
    }
  }

  @Test func noHelloCostsAnAppMore() {
    var exchange = Exchange(ownAppID: "com.example.b", peerAppID: a, process: .random())
    let ticket = Data(repeating: 1, count: 32)
    _ = exchange.channelOpened(ChannelNumber(1), ticket: ticket, now: 0)
    let hello = WireChannelMessage.with {
      $0.hello.version = Exchange.versionMax
      $0.hello.ticket = ticket
      $0.hello.appID = a + Self.marks
    }
    expectSoon("Hello.app_id") {
      let outputs = exchange.receive(hello, on: ChannelNumber(1), now: 0)
      #expect(outputs.contains(.close(ChannelNumber(1), .certificateNotFound, detail: "")))
    }
  }

  /// Texts of other bytes that Unicode takes for the same: the sign of Kelvin is a K there.
  @Test func anIDOfOtherBytesIsAnotherID() {
    var exchange = Exchange(ownAppID: "com.example.b", peerAppID: "com.example.K", process: .random())
    let ticket = Data(repeating: 1, count: 32)
    _ = exchange.channelOpened(ChannelNumber(1), ticket: ticket, now: 0)
    let hello = WireChannelMessage.with {
      $0.hello.version = Exchange.versionMax
      $0.hello.ticket = ticket
      $0.hello.appID = "com.example.\u{212a}"
    }
    #expect(hello.hello.appID == "com.example.K")
    let outputs = exchange.receive(hello, on: ChannelNumber(1), now: 0)
    #expect(outputs.contains(.close(ChannelNumber(1), .certificateNotFound, detail: "")))
  }
}
