import AppRuntime
import Testing

@testable import BlackBerryDynamics

/// Names and numbers of the vendor's interface that code depends on.
struct NumbersTests {
  @Test func eventTypesHaveTheDocumentedNumbers() {
    let types: [GDAppEventType] = [
      .authorized, .notAuthorized, .remoteSettingsUpdate, .servicesUpdate, .policyUpdate,
      .entitlementsUpdate, .backgroundAuthorized, .backgroundNotAuthorized,
    ]
    #expect(types.map(\.rawValue) == [0, 1, 2, 3, 4, 6, 7, 8])
  }

  @Test func resultCodesHaveTheDocumentedNumbers() {
    let codes: [GDAppResultCode] = [
      .errorNone, .errorSecurityError, .errorActivationFailed, .errorProvisioningFailed,
      .errorPushConnectionTimeout, .errorAppDenied, .errorAppVersionNotEntitled, .errorIdleLockout,
      .errorBlocked, .errorWiped, .errorRemoteLockout, .errorPasswordChangeRequired,
      .errorProgrammaticActivationUnknown, .errorProgrammaticActivationNoNetwork,
      .errorProgrammaticActivationCredentialsFailed, .errorProgrammaticActivationServerCommsFailed,
      .errorProgrammaticActivationAppIntegrityFailed,
    ]
    #expect(
      codes.map(\.rawValue) == [
        0, -100, -101, -102, -103, -104, -105, -300, -301, -302, -303, -304, -600, -601, -602, -603, -606,
      ])
  }

  /// A switch in existing code ends in an assertion for codes that it does not know.
  @Test func theRuntimeTellsDocumentedNumbersAlone() {
    let types = AuthorizationEvent.Kind.allCases.map { $0.rawValue }
    #expect(types == [0, 1, 2, 3, 4, 6, 7, 8])
    let codes: Set = [
      0, -100, -101, -102, -103, -104, -105, -300, -301, -302, -303, -304, -600, -601, -602, -603, -606,
    ]
    #expect(Set(AuthorizationCode.allCases.map(\.rawValue)) == codes)
  }

  @Test func everyErrorOfServicesHasAConstant() {
    for code in ServicesError.Code.known {
      let isNamed = code.rawValue <= 13
      let number = ServiceReplyError(code).code
      #expect(isNamed ? Int64(code.vendorCode) == number : code.vendorCode < 0)
      let error = VendorError.of(ServicesError(code))
      #expect(error.domain == GDServicesErrorDomain && error.code == code.vendorCode)
      #expect(!isNamed || ServiceReplyError(code, text: "text").nsError.code == code.vendorCode)
    }
  }

  @Test func statesHaveTheDocumentedNumbers() {
    let states: [GDUserInterfaceState] = [
      .GDUIStateNone, .GDUIStateApplicationInFront, .GDUIStateGDLibraryInFront,
      .GDUIStateBypassUnlockInFront,
    ]
    #expect(states.map(\.rawValue) == [0, 1, 2, 3])
    #expect([GDLibraryScreen.none, .certificateImport, .other].map(\.rawValue) == [0, 1, 1000])
    #expect([BBDActivationState.notActivated, .inProgress, .activated].map(\.rawValue) == [0, 1, 2])
  }

  @Test func optionsOfServicesHaveTheDocumentedNumbers() {
    let options: [GDTForegroundOption] = [
      .GDEPreferMeInForeground, .GDEPreferPeerInForeground, .GDENoForegroundPreference,
    ]
    #expect(options.map(\.rawValue) == [0, 1, 2])
    // A sample sends the number as text, and casts it back.
    #expect(GDTForegroundOption(rawValue: 1) == .GDEPreferPeerInForeground)
    #expect([GDServiceType.application, .server].map(\.rawValue) == [0, 1])
    #expect(GDFrontRequestService == "com.good.gd.icc" && GDFrontRequestMethod == "FRONT_REQ")
  }

  /// Published definitions number their own errors from 1 on.
  @Test func errorsOfServicesAreDifferentAndBelowThoseOfDefinitions() {
    let codes = [
      GDServicesErrorGeneral, GDServicesErrorProcessSuspended, GDServicesErrorApplicationNotFound,
      GDServicesErrorServiceNotFound, GDServicesErrorServiceVersionNotFound,
      GDServicesErrorMethodNotFound, GDServicesErrorNotAllowed, GDServicesErrorInvalidParams,
      GDServicesErrorCertificateNotFound, GDServicesMethodDisabled, GDServicesVersionDisabled,
      GDServicesServiceDisabled, GDServicesErrorEnterpriseUserNotMatch,
    ]
    #expect(Set(codes).count == codes.count && codes.allSatisfy { $0 < 0 })
  }

  @Test func unknownNumbersStayOpen() {
    #expect(GDAppEventType(rawValue: 5)?.rawValue == 5)
    switch GDAppResultCode(rawValue: -999) {
    case .some(.errorNone), nil: Issue.record("it is neither")
    default: break
    }
  }

  @Test func notificationsHaveTheNamesOfTheirConstants() {
    #expect(Notification.Name.GDStateChange.rawValue == "GDStateChangeNotification")
    #expect(GDKeyIsAuthorized == "isAuthorized" && GDKeyReasonNotAuthorized == "reasonNotAuthorized")
  }
}
