import BlackBerryDynamicsTesting
import Testing

@testable import BlackBerryDynamics

extension AppTests {
  struct EntitlementTests {
    /// The versions with blanks between them, or the code of the error.
    private func ask(_ id: String, _ told: Told) async throws -> String {
      let count = told.all.count
      GDiOS.sharedInstance().getEntitlementVersions(for: id) { versions, error in
        let code = (error as? NSError).map { "error \($0.code)" }
        told.add(code ?? (versions ?? []).map(\.stringValue).joined(separator: " "))
      }
      for _ in 0..<1000 {
        if told.all.count > count { return told.all[count] }
        try await Task.sleep(for: .milliseconds(10))
      }
      throw CancellationError()
    }

    private func withAuthorizedApp(_ body: (TestApps, GDTestApp, Handler) async throws -> Void) async throws {
      try await withGDApp { apps, app in
        let handler = Handler()
        GDiOS.sharedInstance().authorize(handler)
        try await handler.told.wait(for: "event 0 0")
        try await body(apps, app, handler)
      }
    }

    @Test func theOwnerDecidesAboutTheOwnEntitlement() async throws {
      try await withAuthorizedApp { _, app, handler in
        let told = Told()
        // A file that does not decide leaves the app its own version.
        #expect(try await ask("com.example.gd", told) == "1.0.0.0")
        try await app.manage([
          "entitlements": ["com.example.gd": ["10.0.0.0", "1.0.0.0", "2.0.0.0"], "com.example.other": ["1"]]
        ])
        try await handler.told.wait(for: "event 6 0")
        #expect(try await ask("com.example.gd", told) == "1.0.0.0 2.0.0.0 10.0.0.0")
        // What the file says about others is not about this app.
        #expect(try await ask("com.example.other", told) == "")
      }
    }

    @Test func otherEntitlementsAreThoseOfAppsThatTheBrokerKnows() async throws {
      try await withAuthorizedApp { apps, _, _ in
        let told = Told()
        for (name, version) in [("a", "2.0.0.0"), ("b", "10.0.0.0"), ("c", "2.0.0.0")] {
          let peer = try await apps.app(
            Application(
              id: ApplicationID("com.example.\(name)"), name: name, entitlementID: "com.example.suite",
              entitlementVersion: ServiceVersion(version)))
          // It offers nothing.
          try await peer.services.start()
        }
        var found = ""
        for _ in 0..<500 where found != "2.0.0.0 10.0.0.0" {
          found = try await ask("com.example.suite", told)
          try await Task.sleep(for: .milliseconds(10))
        }
        #expect(found == "2.0.0.0 10.0.0.0")
        for id in ["com.example.nobody", "", "no id"] { #expect(try await ask(id, told) == "") }
      }
    }

    @Test func withoutABrokerThereIsAnError() async throws {
      try await withAuthorizedApp { apps, _, _ in
        let told = Told()
        await apps.stopBroker()
        let other = try await ask("com.example.other", told)
        #expect(other == "error -1")
        // The owner's word needs no broker.
        let own = try await ask("com.example.gd", told)
        #expect(own == "1.0.0.0")
      }
    }

    @Test func beforeTheFirstAuthorizationItIsAMisuse() async throws {
      try await withGDApp { _, app in
        let answer = try await ask("com.example.gd", Told())
        #expect(answer == "error -2")
        #expect(app.misuses.all.map(\.call) == ["GDiOS.getEntitlementVersions"])
      }
    }

    @Test func theCallbackIsOnTheQueueOfCallbacks() async throws {
      try await withAuthorizedApp { _, app, _ in
        let told = Told()
        let key = DispatchSpecificKey<Bool>()
        app.queue.setSpecific(key: key, value: true)
        GDiOS.sharedInstance().getEntitlementVersions(for: "com.example.gd") { _, _ in
          told.add("\(DispatchQueue.getSpecific(key: key) ?? false)")
        }
        try await told.wait(for: "true")
      }
    }
  }
}
