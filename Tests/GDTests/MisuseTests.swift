import BlackBerryDynamicsTesting
import Testing

@testable import BlackBerryDynamics

extension AppTests {
  struct MisuseTests {
    @Test func callsBeforeTheFirstAuthorizationAreReportedAndFail() async throws {
      try await withGDApp { _, app in
        let gd = GDiOS.sharedInstance()
        #expect(!GDFileManager.default().fileExists(atPath: "/Documents"))
        #expect(GDFileManager.default().contents(atPath: "/a") == nil)
        #expect(throws: (any Error).self) { try GDFileHandle(forReadingFrom: URL(fileURLWithPath: "/a")) }
        #expect(throws: (any Error).self) { try GDFileManager.getReadStream("/a") }
        #expect(gd.getApplicationConfig().isEmpty && gd.getServiceProviders().isEmpty)
        #expect(throws: NSError.self) {
          try GDServiceClient.send(
            to: "com.example.a", withService: "com.example.s", withVersion: "1", withMethod: "m",
            withParams: nil, withAttachments: nil, bringServiceToFront: .GDENoForegroundPreference,
            requestID: nil)
        }
        #expect(
          app.misuses.all.map(\.call) == [
            "GDFileManager.fileExists(atPath:)", "GDFileManager.contents(atPath:)",
            "GDFileHandle.init(forReadingFrom:)", "GDFileManager.getReadStream",
            "GDiOS.getApplicationConfig", "GDiOS.getServiceProviders", "GDServiceClient.send",
          ])
      }
    }

    @Test func whatAnAppDoesBeforeItsAuthorizationIsNoMisuse() async throws {
      try await withGDApp { _, app in
        let service = GDService()
        service.delegate = nil
        let gd = GDiOS.sharedInstance()
        _ = (gd.state.isAuthorized, gd.activationComplete, gd.getVersion(), GDFileHandle())
        #expect(app.misuses.all.isEmpty)
      }
    }

    @Test func aMisuseEndsTheProcessUnlessATestCollectsIt() async {
      await #expect(processExitsWith: .failure) {
        GDConfiguration(plist: [:], environment: [:], program: "notes").onMisuse(
          GDMisuse(call: "send", reason: GDMisuse.tooEarly))
      }
    }

    @Test func authorizeRequiresADelegate() async throws {
      try await withGDApp { _, app in
        app.setAnswers(false)
        GDiOS.sharedInstance().authorize()
        #expect(app.misuses.all.map(\.call) == ["GDiOS.authorize"])
      }
      let change: @Sendable (inout GDConfiguration) -> Void = { $0.checksEventReceiver = false }
      try await withGDApp(change) { _, app in
        app.setAnswers(false)
        GDiOS.sharedInstance().authorize()
        #expect(app.misuses.all.isEmpty)
      }
    }
  }
}
