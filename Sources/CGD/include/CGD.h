// Enums and numbers of the vendor's interface, with its names. C enums keep their names and stay
// open in Swift: a switch over one needs `@unknown default`.

#ifndef CGD_H
#define CGD_H

#define CGD_ENUM(name) enum __attribute__((enum_extensibility(open))) name : long

// Authorization

typedef CGD_ENUM(GDAppEventType) {
  GDAppEventAuthorized = 0,
  GDAppEventNotAuthorized = 1,
  GDAppEventRemoteSettingsUpdate = 2,
  GDAppEventServicesUpdate = 3,
  GDAppEventPolicyUpdate = 4,
  // 5 is not used.
  GDAppEventEntitlementsUpdate = 6,
  GDAppEventBackgroundAuthorized = 7,
  GDAppEventBackgroundNotAuthorized = 8,
} GDAppEventType;

typedef CGD_ENUM(GDAppResultCode) {
  GDErrorNone = 0,
  GDErrorSecurityError = -100,
  GDErrorActivationFailed = -101,
  GDErrorProvisioningFailed = -102,
  GDErrorPushConnectionTimeout = -103,
  GDErrorAppDenied = -104,
  GDErrorAppVersionNotEntitled = -105,
  GDErrorIdleLockout = -300,
  GDErrorBlocked = -301,
  GDErrorWiped = -302,
  GDErrorRemoteLockout = -303,
  GDErrorPasswordChangeRequired = -304,
  GDErrorProgrammaticActivationUnknown = -600,
  GDErrorProgrammaticActivationNoNetwork = -601,
  GDErrorProgrammaticActivationCredentialsFailed = -602,
  GDErrorProgrammaticActivationServerCommsFailed = -603,
  GDErrorProgrammaticActivationAppIntegrityFailed = -606,
} GDAppResultCode;

typedef CGD_ENUM(GDUserInterfaceState) {
  GDUIStateNone = 0,
  GDUIStateApplicationInFront = 1,
  GDUIStateGDLibraryInFront = 2,
  GDUIStateBypassUnlockInFront = 3,
} GDUserInterfaceState;

typedef CGD_ENUM(GDLibraryScreen) {
  GDLibraryScreenNone = 0,
  GDLibraryScreenCertificateImport = 1,
  GDLibraryScreenOther = 1000,
} GDLibraryScreen;

typedef CGD_ENUM(BBDActivationState) {
  BBDActivationStateNotActivated = 0,
  BBDActivationStateInProgress = 1,
  BBDActivationStateActivated = 2,
} BBDActivationState;

// Services

typedef CGD_ENUM(GDServiceType) {
  GDServiceTypeApplication = 0,
  GDServiceTypeServer = 1,
} GDServiceType;

typedef CGD_ENUM(GDTForegroundOption) {
  GDEPreferMeInForeground = 0,
  GDEPreferPeerInForeground = 1,
  GDENoForegroundPreference = 2,
} GDTForegroundOption;

// The vendor publishes no numbers. These are the numbers with which runtime errors cross between
// processes, and no published service definition uses them.
static const long GDServicesErrorGeneral = -1000001;
static const long GDServicesErrorProcessSuspended = -1000002;
static const long GDServicesErrorApplicationNotFound = -1000003;
static const long GDServicesErrorServiceNotFound = -1000004;
static const long GDServicesErrorServiceVersionNotFound = -1000005;
static const long GDServicesErrorMethodNotFound = -1000006;
static const long GDServicesErrorNotAllowed = -1000007;
static const long GDServicesErrorInvalidParams = -1000008;
static const long GDServicesErrorCertificateNotFound = -1000009;
static const long GDServicesMethodDisabled = -1000010;
static const long GDServicesVersionDisabled = -1000011;
static const long GDServicesServiceDisabled = -1000012;
static const long GDServicesErrorEnterpriseUserNotMatch = -1000013;

// Push and reachability

typedef CGD_ENUM(GDPushChannelState) {
  GDPushChannelStateNone = 0,
  GDPushChannelStateOpen = 1,
  GDPushChannelStateClosed = 2,
  GDPushChannelStateError = 3,
} GDPushChannelState;

typedef CGD_ENUM(GDReachabilityStatus) {
  GDReachabilityNotReachable = 0,
  GDReachabilityViaWiFi = 1,
  GDReachabilityViaCellular = 2,
} GDReachabilityStatus;

// Files

typedef CGD_ENUM(GDFileManagerErrorType) {
  GDFileManagerErrorPathDoesNotExist = 100,
  GDFileManagerErrorIOError = 101,
  GDFileManagerErrorPermissionError = 102,
  GDFileManagerErrorDirectoryNotEmpty = 103,
  GDFileManagerErrorPathError = 104,
  GDFileManagerErrorICloudNotSupported = 105,
  GDFileManagerErrorPathAlreadyExists = 106,
  GDFileManagerErrorDeleteBackupError = 107,
  GDFileManagerErrorPreservingMetadata = 108,
  GDFileManagerErrorInvalidFileURL = 109,
  GDFileManagerErrorNotSupported = 110,
  GDFileManagerErrorUnknownError = 500,
} GDFileManagerErrorType;

// Launcher. A plain C enum at the vendor: global constants, compared with `==`.

typedef enum {
  GTLCommonSettingsCellTypeChangePassword = 1,
  GTLCommonSettingsCellTypeLauncher = 2,
  GTLCommonSettingsCellTypeUploadLogs = 3,
} GTLCommonSettingsCellType;

#endif
